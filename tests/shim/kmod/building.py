"""Compiles the module for a kernel, in a copy: kbuild writes beside what it reads."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.fakes.driver.modules import OPTIONS
from tests.machine.kernels import Kernel

SHIM = Path(__file__).parents[3] / "shim"
ROOMS = ("core", "kmod")
TIMEOUT_SECONDS = 200


def build_shim(folder: Path, kernel: Kernel) -> Path:
    """vrampack.ko, below `folder`, made once per source and kernel."""
    made = folder / f"vrampack-{kernel.release}-{_fingerprint(kernel)}"
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            fresh = Path(scratch) / "fresh"
            fresh.mkdir()
            _make(Path(scratch), fresh / "vrampack.ko", kernel)
            _settle(fresh, made)
    return made / "vrampack.ko"


def _make(scratch: Path, into: Path, kernel: Kernel) -> None:
    for room in ROOMS:
        shutil.copytree(SHIM / room, scratch / room)
    sources = scratch / "kmod"
    command = ["make", "--silent", "-C", str(kernel.build), f"M={sources}", *OPTIONS, "modules"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"vrampack.ko for {kernel.release}:\n{done.stdout}{done.stderr}")
    strip = ["strip", "--strip-debug", "-o", str(into), str(sources / "vrampack.ko")]
    subprocess.run(strip, check=True, timeout=20)


def _settle(fresh: Path, made: Path) -> None:
    try:
        fresh.rename(made)
    except OSError:
        if not made.exists():
            raise


def _fingerprint(kernel: Kernel) -> str:
    paths = sorted(path for room in ROOMS for path in (SHIM / room).rglob("*") if path.is_file())
    parts = [path.read_bytes() for path in (*paths, Path(__file__), kernel.build / "Module.symvers")]
    return hashlib.sha256(b"".join([*parts, str(kernel.build).encode()])).hexdigest()[:16]
