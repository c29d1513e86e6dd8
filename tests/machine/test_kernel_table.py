"""The table at the end of `make shim-test` has a verdict for each kernel, and a kernel without tests has failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.machine.kernels import NAMES

REPOSITORY = Path(__file__).parents[2]
TESTS = """
import pytest

@pytest.mark.parametrize("kernel", ["5.10", "6.1"])
@pytest.mark.parametrize("case", [1, 2])
def test_a_table_without_failures_passes(kernel, case):
    assert f"{kernel} {case}" in ("5.10 1", "5.10 2", "6.1 1", "6.1 2")

@pytest.mark.parametrize("kernel", ["5.10", "6.1"])
def test_a_failed_kernel_fails_the_table(kernel):
    assert kernel == "6.1"
"""


def said_by_pytest(*arguments: str) -> tuple[int, list[str]]:
    """Its exit code, and the lines about kernels."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.shim.plugin",
        *arguments,
    ]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, [line for line in done.stdout.splitlines() if line.startswith("RESULT")]


def test_a_kernel_passes_by_its_own_tests(tmp_path: Path) -> None:
    tests = tmp_path / "test_kernels.py"
    tests.write_text(TESTS)
    code, lines = said_by_pytest(str(tests))
    assert (code, lines) == (1, ["RESULT FAIL kernel=5.10 checks=2 failed=1", "RESULT PASS kernel=6.1 checks=3"])


def test_a_kernel_of_which_no_test_ran_has_failed() -> None:
    code, lines = said_by_pytest("-m", "shim", "tests/shim/kmod", "--deselect=tests/shim/kmod")
    assert code != 0
    assert lines == [f"RESULT FAIL kernel={name} checks=0" for name in NAMES]
