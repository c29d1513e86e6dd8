"""`make shim-test`: three of the kernels in one process, the fourth and all other tests in a second: both wait a lot.

    python -m tests.shim [pytest's options]

The output of the second is printed when the first is over.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.support.joined_reports import joined_reports

TESTS = Path(__file__).parents[1]
MODULE = TESTS / "shim" / "kmod"
OTHER_MACHINE = TESTS / "arm64"
"""Has a target of its own, and compilers."""
PARTS: Sequence[Sequence[str]] = (
    ("--kernel=6.1", "--kernel=6.1-debug", "--kernel=5.10", str(MODULE)),
    ("--kernel=6.12", "--kernel=none", f"--ignore={OTHER_MACHINE}", str(TESTS)),
)
"""Both take about the same time. A third at the same time makes virtual machines wait for their own second processor."""
NOTHING_TO_DO = 5
"""Pytest's exit code where no test was chosen; fine for a part."""


def main(options: Sequence[str]) -> int:
    """The exit code: 0 where all passed."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.shim.plugin", "-m", "shim", "--timeout", "400", *options]
    with ExitStack() as stack:
        environments = stack.enter_context(joined_reports(len(PARTS)))
        outputs = [None, *(stack.enter_context(tempfile.TemporaryFile("w+")) for _ in PARTS[1:])]
        running = [
            stack.enter_context(subprocess.Popen([*command, *part], env=environment, stdout=output, stderr=output))
            for part, environment, output in zip(PARTS, environments, outputs, strict=True)
        ]
        for process in running:
            stack.callback(process.terminate)
        codes = {process.wait() for process in running}
        for said in filter(None, outputs):
            said.seek(0)
            sys.stdout.write(said.read())
    return max(codes - {0, NOTHING_TO_DO} or {min(codes)})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
