"""`python -m tests.driver.first_builds`: NVIDIA's modules for the kernels of $VRAMPACK_DRIVERS, built once and then found in the cache."""

from __future__ import annotations

import sys

from tests.driver.nvidia_build import build_nvidia_modules
from tests.driver.real_driver import COMBINATIONS
from tests.machine.kernels import prepare_kernel


def build_modules() -> None:
    """Minutes for each. Raises `NoPackagesError` or `DriverBuildError`."""
    for combination in COMBINATIONS:
        sys.stdout.write(f"driver {combination.branch} for kernel {combination.kernel}\n")
        sys.stdout.flush()
        build_nvidia_modules(combination.branch, prepare_kernel(combination.kernel))


if __name__ == "__main__":
    build_modules()
