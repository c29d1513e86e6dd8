"""The programs that every machine has: its first process, and one that makes a system call. Static, and made once per source."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path

from tests.fakes.driver.build import FLAGS

SOURCES = Path(__file__).parent / "guest"
BUILT = Path(__file__).parents[2] / "build"
PROGRAMS = {
    "init": ("init.c", "spawn.c", "folders.c"),
    "call": ("call.c",),
}


def build_guest() -> dict[str, Path]:
    """By name."""
    made = BUILT / f"guest-{_fingerprint()}"
    if not made.exists():
        BUILT.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILT) as scratch:
            fresh = Path(scratch) / "fresh"
            fresh.mkdir()
            _compile(fresh)
            _settle(fresh, made)
    return {name: made / name for name in PROGRAMS}


def _compile(folder: Path) -> None:
    for name, sources in PROGRAMS.items():
        words = ["gcc", *FLAGS, "-O1", "-static", "-s", "-o", str(folder / name)]
        subprocess.run([*words, *(str(SOURCES / each) for each in sources)], check=True, timeout=100)


def _settle(fresh: Path, made: Path) -> None:
    """Several tests may build at once: the first is as good as the last."""
    try:
        fresh.rename(made)
    except OSError:
        if not made.exists():
            raise


def _fingerprint() -> str:
    paths = sorted([*SOURCES.iterdir(), Path(__file__)])
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]
