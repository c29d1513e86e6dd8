"""`make e2e`: three workers, each with a control plane and a network of its own, so that one waits while others work.

    python -m tests.e2e [pytest's options]

Files are shared out whole. What Go builds or downloads is there before they start: their networks have loopback alone, and a
cold build takes longer than a test may. Network namespaces need root; for anyone else one process runs all tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from tests.e2e.first_builds import build_programs

WORKERS = 3


def main(options: Sequence[str]) -> int:
    """The exit code of pytest."""
    build_programs()
    command = [sys.executable, "-m", "pytest", "-m", "e2e"]
    if os.geteuid() == 0:
        command += ["-p", "tests.e2e.own_network", "-p", "tests.e2e.longest_first"]
        # Without the last, xdist would put the files with the most tests first.
        command += ["-n", str(WORKERS), "--dist", "loadfile", "--no-loadscope-reorder"]
    return subprocess.run([*command, *(options or ["tests"])], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
