"""The programs that every machine has: its first process, and one that makes a system call. Static."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.fakes.driver.build import FLAGS

SOURCES = Path(__file__).parent / "guest"
PROGRAMS = {
    "init": ("init.c", "spawn.c", "folders.c"),
    "call": ("call.c",),
}


def build_guest(folder: Path) -> dict[str, Path]:
    """By name, in that folder."""
    for name, sources in PROGRAMS.items():
        words = ["gcc", *FLAGS, "-O1", "-static", "-s", "-o", str(folder / name)]
        subprocess.run([*words, *(str(SOURCES / each) for each in sources)], check=True, timeout=100)
    return {name: folder / name for name in PROGRAMS}
