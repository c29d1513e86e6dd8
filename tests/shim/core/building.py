"""Compiling the core with a test program of this folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

TESTS = Path(__file__).parent
CORE = Path(__file__).parents[3] / "shim" / "core"
STRICT = [
    "-std=c11",
    "-O1",
    "-g",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wshadow",
    "-Wconversion",
    "-Wstrict-prototypes",
    "-Wmissing-prototypes",
]
GUARDED = ["-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
ADDRESSES = ["-fsanitize=address,undefined", *GUARDED]
THREADS = ["-fsanitize=thread", *GUARDED]


def build_program(program: Path, sources: list[str], options: list[str], core: Path = CORE) -> Path:
    """A program of the named sources and every C file of the core."""
    parts = [*(TESTS / source for source in sources), *sorted(core.glob("*.c"))]
    command = [
        "gcc",
        *STRICT,
        "-D_GNU_SOURCE",
        f"-I{core}",
        *options,
        *map(str, parts),
        "-o",
        str(program),
        "-lpthread",
    ]
    subprocess.run(command, check=True, timeout=100)
    return program
