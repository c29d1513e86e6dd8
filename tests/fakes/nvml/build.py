"""Compiles the stub with the machine's own gcc, once per source: `python -m tests.fakes.nvml.build FOLDER`."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

SOURCE = Path(__file__).parent / "stub"
LIBRARY = "libnvidia-ml.so.1"
FLAGS = (
    "-std=c11",
    "-D_GNU_SOURCE",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fPIC",
    "-shared",
    "-pthread",
    "-Wl,-z,defs",
)
EXPORTED = re.compile(r"^(?:nvmlReturn_t|const char \*) ?((?:nvml|vrampack_)\w+)\(", re.MULTILINE)


def build_stub(folder: Path, *, without: Collection[str] = ()) -> Path:
    """A folder below `folder` that holds the library alone; it lacks the functions of `without`, as older ones do."""
    made = folder / f"nvml-{_fingerprint(without)}"
    if not (made / LIBRARY).exists():
        made.mkdir(parents=True, exist_ok=True)
        _compile(made, without)
    return made


def _fingerprint(without: Collection[str]) -> str:
    sources = b"".join(path.read_bytes() for path in sorted(SOURCE.iterdir()))
    return hashlib.sha256(sources + repr((FLAGS, sorted(without))).encode()).hexdigest()[:16]


def _compile(made: Path, without: Collection[str]) -> None:
    exported = [name for name in EXPORTED.findall((SOURCE / "nvml.c").read_text()) if name not in without]
    with tempfile.TemporaryDirectory(dir=made) as scratch:
        names = Path(scratch) / "names"
        names.write_text("{ global: " + " ".join(f"{name};" for name in exported) + " local: *; };\n")
        fresh = Path(scratch) / LIBRARY
        sources = [str(path) for path in sorted(SOURCE.glob("*.c"))]
        link = (f"-Wl,-soname,{LIBRARY}", f"-Wl,--version-script={names}")
        subprocess.run(["gcc", *FLAGS, *link, "-o", str(fresh), *sources], check=True)
        fresh.replace(made / LIBRARY)  # whole or not at all: several tests may build at once


if __name__ == "__main__":
    sys.stdout.write(f"{build_stub(Path(sys.argv[1])) / LIBRARY}\n")
