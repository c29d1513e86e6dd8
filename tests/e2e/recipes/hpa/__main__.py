"""`python -m tests.e2e.recipes.hpa [ARGUMENTS OF PYTEST]`: the tests of this folder, in a network namespace of their own.

There the addresses of Services are on loopback, and nothing outside reaches what listens on every address.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.recipes.hpa.cluster_network import SERVICE_ADDRESSES
from tests.e2e.recipes.hpa.programs import locate_scaling_programs
from tests.support.control_plane import binaries

INSIDE = f'ip link set lo up && ip address add {SERVICE_ADDRESSES} dev lo && exec "$@"'


def main(arguments: Sequence[str]) -> int:
    """The exit code of pytest."""
    binaries.locate_programs()
    locate_scaling_programs()  # a build may need the network, and there is none inside
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    wanted = arguments if any(Path(each).exists() for each in arguments) else [str(Path(__file__).parent), *arguments]
    tests = [sys.executable, "-m", "pytest", "-m", "recipes", *wanted]
    return subprocess.run(["unshare", *user, "--net", "sh", "-c", INSIDE, "sh", *tests], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
