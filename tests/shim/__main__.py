"""`make shim-test`: the kernel module's tests and the others side by side, since either leaves a processor idle half the time.

    python -m tests.shim [pytest's options]

The others' output is printed when the module's tests are over. Of `--junitxml` in $PYTEST_ADDOPTS both make one file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

TESTS = Path(__file__).parents[1]
MODULE = TESTS / "shim" / "kmod"
OTHER_MACHINE = TESTS / "arm64"
"""Has a target of its own, and compilers."""
NOTHING_TO_DO = 5
"""Pytest's exit code where no test was chosen; fine for one half."""
JUNIT = re.compile(r"--junitxml=(\S+)")


def main(options: Sequence[str]) -> int:
    """The exit code: 0 where all passed."""
    given = os.environ.get("PYTEST_ADDOPTS", "")
    command = [sys.executable, "-m", "pytest", "-p", "tests.shim.plugin", "-m", "shim", "--timeout", "400", *options]

    def reporting(report: Path) -> Mapping[str, str]:
        return {**os.environ, "PYTEST_ADDOPTS": JUNIT.sub(f"--junitxml={report}", given)}

    with tempfile.TemporaryDirectory() as name:
        reports = [Path(name) / "module.xml", Path(name) / "others.xml"]
        said = Path(name) / "others.log"
        with said.open("wb") as log:
            others = subprocess.Popen(
                [*command, f"--ignore={MODULE}", f"--ignore={OTHER_MACHINE}", str(TESTS)],
                env=reporting(reports[1]),
                stdout=log,
                stderr=log,
            )
        try:
            module = subprocess.run([*command, str(MODULE)], env=reporting(reports[0]), check=False)
            codes = {module.returncode, others.wait()}
        finally:
            others.terminate()
        sys.stdout.write(said.read_text())
        if asked := JUNIT.search(given):
            _join((each for each in reports if each.exists()), Path(asked[1]))
    return max(codes - {0, NOTHING_TO_DO} or {min(codes)})


def _join(reports: Iterable[Path], into: Path) -> None:
    whole = ET.Element("testsuites")
    for each in reports:
        whole.extend(ET.parse(each).getroot())  # noqa: S314 - files that pytest has just written
    ET.ElementTree(whole).write(into)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
