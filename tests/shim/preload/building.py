"""Compiles the programs of these tests, over the calls that the fake driver's own programs make."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.driver.build import FLAGS, PROGRAMS
from tests.shim.preload.container import LIBRARY

SOURCES = Path(__file__).parent / "programs"
LIBRARY_SOURCES = Path(__file__).parents[3] / "shim" / "preload"
CALLS = (PROGRAMS / "rm.c", PROGRAMS / "start.c")


@dataclass(frozen=True, slots=True)
class PreloadTestPrograms:
    """One folder of programs."""

    folder: Path

    @property
    def steps(self) -> Path:
        return self.folder / "steps"

    @property
    def stress(self) -> Path:
        return self.folder / "stress"

    @property
    def export(self) -> Path:
        return self.folder / "export"

    @property
    def channels(self) -> Path:
        return self.folder / "channels"

    @property
    def malformed(self) -> Path:
        return self.folder / "malformed"

    @property
    def forbid(self) -> Path:
        return self.folder / "forbid"

    @property
    def around(self) -> Path:
        return self.folder / "around"

    @property
    def around_library(self) -> Path:
        return self.folder / "libaround.so"


def build_script(text: str) -> list[str]:
    """The arguments of `steps`."""
    return text.split()


def build_library(folder: Path) -> Path:
    """The library as it ships."""
    subprocess.run(
        ["make", "--silent", "-C", str(LIBRARY_SOURCES), "preload", f"OUT={folder}"], check=True, timeout=100
    )
    return folder / LIBRARY


def build_extra(folder: Path) -> PreloadTestPrograms:
    folder.mkdir(exist_ok=True)
    built = PreloadTestPrograms(folder)
    compile_source(built.steps, [PROGRAMS / "steps.c", *CALLS], "-pthread")
    compile_source(built.stress, [PROGRAMS / "stress.c", *CALLS], "-pthread")
    compile_source(built.export, [PROGRAMS / "export.c", *CALLS], "-pthread")
    compile_source(built.channels, [PROGRAMS / "channels.c", *CALLS])
    compile_source(built.malformed, [PROGRAMS / "malformed.c", *CALLS])
    compile_source(built.forbid, [SOURCES / "forbid.c"])
    compile_source(built.around, [SOURCES / "around.c"], "-D_GNU_SOURCE")
    calls = [compile_source(folder / f"{path.stem}.o", [path], "-c", "-fPIC", "-Dioctl=around_ioctl") for path in CALLS]
    compile_source(built.around_library, [SOURCES / "around_library.c", *calls], "-fPIC", "-shared")
    return built


def compile_source(into: Path, sources: Sequence[Path], *flags: str) -> Path:
    command = ["gcc", *FLAGS, "-O2", f"-I{PROGRAMS}", *flags, "-o", str(into), *map(str, sources)]
    subprocess.run(command, check=True, timeout=100)
    return into
