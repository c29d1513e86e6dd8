"""A copy of the product and its tests in which lines can be broken."""

from __future__ import annotations

import compileall
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode

from tests.mutations.breaks import Mutation

ROOT = Path(__file__).parents[2]
COPIED = ("vrampack", "extender", "policies", "manifests", "tests", "pyproject.toml")
NEVER_RUN = [ROOT / "tests" / each for each in ("e2e", "node", "shim", "machine")]
"""Rows name fast tests, which need nothing of these."""
SECONDS = 60
"""A test takes less than one; a longer run means a break that hangs."""


@dataclass(frozen=True, slots=True)
class MutationOutcome:
    code: int
    output: str


class ProductCopy:
    """Runs its tests by `forked_runs`; see there."""

    def __init__(self, path: Path, server: subprocess.Popen[str]) -> None:
        self._path = path
        self._server = server

    @contextmanager
    def broken_by(self, row: Mutation) -> Iterator[None]:
        """Inside the block, the line of that row is broken."""
        file = self._path / row.file
        text = file.read_text()
        file.write_text(row.mutate(text))
        try:
            yield
        finally:
            file.write_text(text)

    def run_tests(self, tests: Iterable[str]) -> MutationOutcome:
        """These tests of the copy, until the first that fails."""
        output = self._path / "output"
        # The libraries are there before pytest could rewrite their assertions, which is no error.
        options = ["-q", "-x", "--color=no", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning", *tests]
        run = {"arguments": options, "output": str(output), "seconds": SECONDS}
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(run) + "\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        if not answer:
            raise RuntimeError(f"the test server has ended, exit code {self._server.wait()}")
        return MutationOutcome(int(answer), output.read_text(errors="replace"))


@contextmanager
def open_product_copy(path: Path) -> Iterator[ProductCopy]:
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, path / name, ignore=_left_out)
        else:
            shutil.copy(ROOT / name, path)
    # A line broken and mended within a second changes neither the time nor, often, the size: compare what is in it.
    compileall.compile_dir(path, quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    environment = os.environ | {"PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]  # of the pytest that runs these runs
    command = [sys.executable, "-m", "tests.mutations.forked_runs"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=path, env=environment, stdin=pipe, stdout=pipe, text=True) as server:
        try:
            yield ProductCopy(path, server)
        finally:
            assert server.stdin is not None
            server.stdin.close()  # it ends


def _left_out(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name == "__pycache__" or Path(folder, name) in NEVER_RUN}
