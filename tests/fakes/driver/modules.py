"""Compiles the driver's kernel form, nvidia.ko and nvidia-uvm.ko, once per source, kernel and version of the driver."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.driver.build import SERVER
from tests.support.build_cache import build_once, fingerprint_of

KERNEL = Path(__file__).parent / "kernel"
SHARED = ("behaviour.c", "alloc.c", "heap.c", "memory.c", "objects.c", "control.c", "exports.c", "uvm.c", "layout.c")
HEADERS = ("behaviour.h", "call.h", "layout.h", "memory.h", "objects.h")
VERSION = "580.95.05"
ONE_DEVICE_VERSION = "535.129.03"
# The kernel's type information (BTF) needs a program that few machines have.
OPTIONS = ("W=1", "KCFLAGS=-Werror", "CONFIG_DEBUG_INFO_BTF_MODULES=")
TIMEOUT_SECONDS = 200


@dataclass(frozen=True, slots=True)
class FakeDriverModules:
    """Loaded in this order, unloaded in the reverse."""

    folder: Path

    @property
    def nvidia(self) -> Path:
        return self.folder / "nvidia.ko"

    @property
    def uvm(self) -> Path:
        return self.folder / "nvidia-uvm.ko"


def build_modules(
    folder: Path, kernel_build: Path, version: str = VERSION, *, arguments: Sequence[str] = ()
) -> FakeDriverModules:
    """Of that version, which decides on the devices too: one for all minors before 545. `arguments` are make's own."""
    made = folder / f"nvidia-{version}-{_fingerprint(kernel_build, arguments)}"
    return FakeDriverModules(build_once(made, lambda fresh: _make(fresh, kernel_build, version, arguments)))


def _copied(sources: Path) -> Path:
    """One flat folder: kbuild writes beside what it reads."""
    shutil.copytree(KERNEL, sources)
    for name in (*SHARED, *HEADERS):
        shutil.copy(SERVER / name, sources)
    return sources


def _make(fresh: Path, kernel_build: Path, version: str, arguments: Sequence[str]) -> None:
    sources = _copied(fresh.parent / "sources")
    command = [
        "make",
        "-s",
        "-C",
        str(kernel_build),
        f"M={sources.resolve()}",
        f"VERSION_OF_DRIVER={version}",
        *OPTIONS,
    ]
    done = subprocess.run(
        [*command, *arguments, "modules"], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    for module in ("nvidia.ko", "nvidia-uvm.ko"):
        subprocess.run(
            ["strip", "--strip-debug", "-o", str(fresh / module), str(sources / module)], check=True, timeout=20
        )


def _fingerprint(kernel_build: Path, arguments: Sequence[str]) -> str:
    paths = sorted(path for path in (*KERNEL.rglob("*"), *SERVER.iterdir(), Path(__file__)) if path.is_file())
    config = [kernel_build / name for name in (".config", "Module.symvers")]
    return fingerprint_of(*paths, *config, str(kernel_build.resolve()), *arguments)
