"""`make shim-test`: the kernel module's tests and the others side by side, since either leaves a processor idle half the time.

    python -m tests.shim [pytest's options]

The output of the others is printed when the module's tests are over.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.joined_reports import joined_reports

TESTS = Path(__file__).parents[1]
MODULE = TESTS / "shim" / "kmod"
OTHER_MACHINE = TESTS / "arm64"
"""Has a target of its own, and compilers."""
NOTHING_TO_DO = 5
"""Pytest's exit code where no test was chosen; fine for one half."""


def main(options: Sequence[str]) -> int:
    """The exit code: 0 where all passed."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.shim.plugin", "-m", "shim", "--timeout", "400", *options]
    without_module = [f"--ignore={MODULE}", f"--ignore={OTHER_MACHINE}", str(TESTS)]
    with joined_reports(2) as (for_module, for_others), tempfile.TemporaryFile("w+") as said:
        others = subprocess.Popen([*command, *without_module], env=for_others, stdout=said, stderr=said)
        try:
            module = subprocess.run([*command, str(MODULE)], env=for_module, check=False)
            codes = {module.returncode, others.wait()}
        finally:
            others.terminate()
        said.seek(0)
        sys.stdout.write(said.read())
    return max(codes - {0, NOTHING_TO_DO} or {min(codes)})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
