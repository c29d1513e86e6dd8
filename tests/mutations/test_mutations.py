"""Every break is noticed by the test that its row names.

The rows themselves are checked in `make test`. The runs take a process each, three minutes of CPU together: `make mutations`.
"""

from __future__ import annotations

import ast
import compileall
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest
import yaml

from tests.mutations.breaks import Mutation, join_mutations
from tests.mutations.in_agent import AGENT
from tests.mutations.in_binding import BINDINGS
from tests.mutations.in_cards import CARDS
from tests.mutations.in_hosts import HOSTS
from tests.mutations.in_http import DOORS
from tests.mutations.in_kmod import KMOD
from tests.mutations.in_ledger import LEDGERS
from tests.mutations.in_preload import PRELOAD
from tests.mutations.in_requeue import WAITING
from tests.mutations.in_verbs import VERBS

ROOT = Path(__file__).parents[2]
COPIED = [
    "vrampack",
    "extender",
    "policies",
    "manifests",
    "tests",
    "pyproject.toml",
]
SECONDS = 60
"""A test takes less than one and its process two; more is a break that hangs."""

BREAKS = join_mutations(CARDS, LEDGERS, BINDINGS, VERBS, WAITING, DOORS, AGENT, PRELOAD, KMOD, HOSTS)


class Copy:
    """The product and its tests, where lines can be broken."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, path / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, path)
        # A line broken and mended within a second changes neither the time nor, often, the size: compare what is in it.
        compileall.compile_dir(path, quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)

    def run(self, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
        """These tests of the copy, until the first that fails."""
        environment = os.environ | {"PYTHONPATH": str(self.path), "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("PYTEST_ADDOPTS", None)
        options = ["-q", "-x", "--color=no", "-p", "no:cacheprovider", "-p", "no:randomly", *tests]
        return subprocess.run(
            [sys.executable, "-m", "pytest", *options],
            cwd=self.path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("copy"))


@pytest.mark.parametrize("row", BREAKS.values(), ids=BREAKS)
def test_the_line_is_there_and_can_be_broken(row: Mutation) -> None:
    """Once, and what it becomes can still be read: a file that is no Python would fail any test."""
    text = (ROOT / row.file).read_text()
    assert [line.strip() for line in text.splitlines()].count(row.old) == 1
    broken = row.mutate(text)
    assert broken != text
    if row.file.endswith(".py"):
        compile(broken, row.file, "exec")
        assert ast.dump(ast.parse(broken)) != ast.dump(ast.parse(text))
    else:
        assert list(yaml.safe_load_all(broken)) != list(yaml.safe_load_all(text))


@pytest.mark.parametrize("row", BREAKS.values(), ids=BREAKS)
def test_the_test_that_must_notice_is_there(row: Mutation) -> None:
    """Cases of a table have names that only a run knows: one that is not there makes the run of all of them fail."""
    name = row.test.partition("::")[2].partition("[")[0]
    tree = ast.parse((ROOT / row.test_file).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.mutation
def test_unbroken_all_of_them_pass(copy: Copy) -> None:
    run = copy.run(sorted({row.test for row in BREAKS.values()}))
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"^\d+ passed in ", run.stdout, re.MULTILINE), run.stdout


@pytest.mark.mutation
@pytest.mark.parametrize("row", BREAKS.values(), ids=BREAKS)
def test_it_is_noticed(row: Mutation, copy: Copy) -> None:
    """By what the test says, or by another error of ours than it wants: a break that makes Python stumble shows nothing."""
    file = copy.path / row.file
    text = file.read_text()
    file.write_text(row.mutate(text))
    try:
        run = copy.run([row.test])
    finally:
        file.write_text(text)
    said = run.stdout + run.stderr
    assert run.returncode == 1, said
    assert re.search(r"^1 failed(, \d+ passed)? in ", run.stdout, re.MULTILINE), said
    assert re.search(r"^E +(AssertionError|assert |Failed: DID NOT RAISE|kube\.errors\.)", run.stdout, re.MULTILINE), (
        said
    )
