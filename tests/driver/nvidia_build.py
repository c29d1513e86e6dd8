"""NVIDIA's open modules (MIT and GPL), built for a kernel of the harness and kept in the cache of `tests/machine/cache.py`."""

from __future__ import annotations

import re
import subprocess
import tarfile
import tempfile
from pathlib import Path

from tests.driver.nvidia_packages import RELEASES, fetch_sources
from tests.machine.cache import cache_key, cached
from tests.machine.kernels import Kernel

MODULES = ("nvidia", "nvidia-uvm")
BUILD_SECONDS = 1500
"""Three to eleven minutes were measured on two processors."""


class DriverBuildError(Exception):
    """NVIDIA's sources did not compile for a kernel."""


def build_nvidia_modules(branch: str, kernel: Kernel) -> Path:
    """The folder of nvidia.ko and nvidia-uvm.ko for this kernel; built in minutes where the cache does not have it."""
    key = cache_key(Path(__file__), RELEASES[branch].package_version, kernel.release, kernel.build / "Module.symvers")
    return cached(f"nvidia-{branch}-{kernel.name}", key, lambda into: _fetch_and_build(branch, kernel, into))


def _fetch_and_build(branch: str, kernel: Kernel, into: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="nvidia-") as name:
        folder = Path(name)
        fetch_sources(branch, folder)
        (archive,) = (folder / "usr" / "src").glob("nvidia-open-kernel*.tar*")
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        _build(folder / "modules" / "nvidia-open-kernel", kernel)
        for module in MODULES:
            built = folder / "modules" / "nvidia-open-kernel" / f"{module}.ko"
            # A tenth in size; the names that /proc/kallsyms shows stay.
            subprocess.run(["strip", "--strip-debug", "-o", str(into / built.name), str(built)], check=True)


def _build(sources: Path, kernel: Kernel) -> None:
    """Debian splits the headers of a kernel in two, and NVIDIA's Makefile wants both folders."""
    (common,) = kernel.build.parent.glob("linux-headers-*-common")
    _adapt(sources / "nvidia" / "nv-pci.c", common)
    command = ["make", "--silent", f"-j{_count_processors()}", f"SYSSRC={common}", f"SYSOUT={kernel.build}"]
    command += ["IGNORE_CC_MISMATCH=1", "CONFIG_DEBUG_INFO_BTF_MODULES=", f"NV_KERNEL_MODULES={' '.join(MODULES)}"]
    command += ["NV_EXCLUDE_BUILD_MODULES=nvidia-peermem", "modules"]
    done = subprocess.run(
        command, cwd=sources, capture_output=True, text=True, errors="replace", timeout=BUILD_SECONDS, check=False
    )
    if done.returncode:
        raise DriverBuildError(f"{' '.join(command)}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def _adapt(source: Path, headers: Path) -> None:
    """Kernels of 2026 have a fourth argument in one function, which these releases do not know yet."""
    declared = (headers / "include" / "linux" / "pci.h").read_text()
    if re.search(r"pci_resize_resource\([^)]*exclude_bars", declared):
        text = source.read_text()
        source.write_text(
            re.sub(
                r"pci_resize_resource\((pci_dev, .*), requested_size\)",
                r"pci_resize_resource(\1, requested_size, 0)",
                text,
            )
        )


def _count_processors() -> str:
    return subprocess.run(["nproc"], capture_output=True, text=True, check=True).stdout.strip()
