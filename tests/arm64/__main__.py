"""`make arm64-test`: the hook and the core, compiled for arm64, under the tests that they have on amd64.

    python -m tests.arm64 [pytest's options]

The kernel runs their programs by qemu-user, as if they were its own. What it cannot show: calls of NVIDIA's driver, since
qemu hands no unknown ioctl on, sanitizers, and threads that race.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
COMPILERS = Path(__file__).parent / "compilers"
LIBRARIES = "/usr/aarch64-linux-gnu"
SUITES = (
    *(f"tests/shim/test_{name}.py" for name in ("hook", "json", "config", "cgroup_lines")),
    *(f"tests/shim/core/test_{name}.py" for name in ("decisions", "entry_points", "layouts", "order", "reports")),
    "tests/arm64",
)


def main(options: Sequence[str]) -> int:
    """Pytest's exit code."""
    environment = {**os.environ, "PATH": f"{COMPILERS}:{os.environ['PATH']}", "QEMU_LD_PREFIX": LIBRARIES}
    in_namespace = ["unshare", "--mount", "--propagation", "private", "images/foreign", "arm64"]
    pytest = [sys.executable, "-m", "pytest", "-m", "shim", "--timeout", "400", *options, *SUITES]
    return subprocess.run([*in_namespace, *pytest], cwd=REPOSITORY, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
