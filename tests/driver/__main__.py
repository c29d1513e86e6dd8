"""`make driver-test`: prepares kernels, modules and libraries, then runs the tests.

    python -m tests.driver [pytest's options]

Two workers, each with the machines of its combinations. NVIDIA's libraries and firmware lie in a temporary folder meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.driver.first_builds import build_modules
from tests.driver.nvidia_build import DriverBuildError
from tests.driver.nvidia_packages import RELEASES, fetch_firmware, fetch_user_space
from tests.driver.real_driver import FILES_VARIABLE, OPENED_BRANCH
from tests.machine.packages import NoPackagesError

HERE = Path(__file__).parent
TIMEOUT_SECONDS = 400
"""For one test, including its machine's boot."""


def main(options: Sequence[str]) -> int:
    """The exit code: 0 where all passed."""
    with tempfile.TemporaryDirectory(prefix="nvidia-") as name:
        try:
            _prepare(Path(name))
        except (NoPackagesError, DriverBuildError) as error:
            sys.stderr.write(f"make driver-test: {error}\n")
            return 2
        command = [sys.executable, "-m", "pytest", "-p", "tests.driver.result_table", "-m", "driver"]
        command += ["-n", "2", "--dist", "loadgroup", f"--timeout={TIMEOUT_SECONDS}", *options, str(HERE)]
        return subprocess.run(command, env={**os.environ, FILES_VARIABLE: name}, check=False).returncode


def _prepare(folder: Path) -> None:
    build_modules()
    for branch in RELEASES:
        fetch_user_space(branch, folder / branch)
    fetch_firmware(OPENED_BRANCH, folder / OPENED_BRANCH)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
