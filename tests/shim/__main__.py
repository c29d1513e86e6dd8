"""`make shim-test`: the kernel module's tests and the others side by side, since either leaves a processor idle half the time.

    python -m tests.shim [pytest's options]

What the second half says is said when the first is over. Of `--junitxml` in $PYTEST_ADDOPTS both make one file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from tests.machine.kernels import TESTS

MODULE = TESTS / "shim" / "kmod"
NOTHING_TO_DO = 5
"""Pytest's exit code where no test was chosen; fine for one half."""
JUNIT = re.compile(r"--junitxml=(\S+)")


def main(options: Sequence[str]) -> int:
    """The exit code: 0 where all passed."""
    given = os.environ.get("PYTEST_ADDOPTS", "")
    report = JUNIT.search(given)
    with tempfile.TemporaryDirectory() as folder:
        reports = [Path(folder) / f"{half}.xml" for half in ("module", "others")]
        environments = [
            {**os.environ, "PYTEST_ADDOPTS": JUNIT.sub(f"--junitxml={each}", given) if report else given}
            for each in reports
        ]
        command = [sys.executable, "-m", "pytest", "-m", "shim", "--timeout", "400", *options]
        with tempfile.TemporaryFile() as said:
            with subprocess.Popen(
                [*command, f"--ignore={MODULE}", str(TESTS)], env=environments[1], stdout=said, stderr=said
            ) as others:
                try:
                    codes = [subprocess.run([*command, str(MODULE)], env=environments[0], check=False).returncode]
                    codes.append(others.wait())
                except BaseException:
                    others.terminate()
                    raise
            said.seek(0)
            sys.stdout.buffer.write(said.read())
            sys.stdout.flush()
        if report:
            _join([each for each in reports if each.exists()], Path(report[1]))
    wrong = [code for code in codes if code not in (0, NOTHING_TO_DO)]
    return max(wrong, default=NOTHING_TO_DO if all(codes) else 0)


def _join(reports: Sequence[Path], into: Path) -> None:
    whole = ET.Element("testsuites")
    for each in reports:
        whole.extend(ET.parse(each).getroot())  # noqa: S314 - files that pytest has just written
    ET.ElementTree(whole).write(into)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
