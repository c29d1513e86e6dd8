"""Compiles modules for a kernel, in a copy: kbuild writes beside what it reads."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.driver.modules import OPTIONS
from tests.machine.kernels import Kernel
from tests.support.build_cache import build_once, fingerprint_of

SHIM = Path(__file__).parents[3] / "shim"
TIMEOUT_SECONDS = 200


@dataclass(frozen=True, slots=True)
class KmodSource:
    """One module: its own folder is the last; the others are copied beside it."""

    name: str
    folders: Sequence[Path]

    def fingerprint(self, kernel: Kernel) -> str:
        paths = sorted(path for folder in self.folders for path in folder.rglob("*") if path.is_file())
        return fingerprint_of(*paths, Path(__file__), kernel.build / "Module.symvers", str(kernel.build))


VRAMPACK = KmodSource("vrampack", (SHIM / "core", SHIM / "kmod"))
INTERPOSER = KmodSource("interposer", (Path(__file__).parent / "interposer",))
SPINNER = KmodSource("spinner", (Path(__file__).parent / "spinner",))
TEXTDUMP = KmodSource("textdump", (Path(__file__).parent / "textdump",))


def build_module(folder: Path, kernel: Kernel, source: KmodSource) -> Path:
    """NAME.ko, below `folder`, made once per source and kernel."""
    made = folder / f"{source.name}-{kernel.release}-{source.fingerprint(kernel)}"
    name = f"{source.name}.ko"
    return build_once(made, lambda fresh: _make(fresh / name, kernel, source)) / name


def _make(into: Path, kernel: Kernel, source: KmodSource) -> None:
    scratch = into.parents[1]
    for folder in source.folders:
        shutil.copytree(folder, scratch / folder.name)
    sources = scratch / source.folders[-1].name
    command = ["make", "--silent", "-C", str(kernel.build), f"M={sources}", *OPTIONS, "modules"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{into.name} for {kernel.release}:\n{done.stdout}{done.stderr}")
    subprocess.run(["strip", "--strip-debug", "-o", str(into), str(sources / into.name)], check=True, timeout=20)
