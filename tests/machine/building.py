"""The first process of every machine: static, and made once per source."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path

from tests.fakes.driver.build import FLAGS

SOURCES = Path(__file__).parent / "guest"
BUILT = Path(__file__).parents[2] / "build"


def build_init() -> Path:
    made = BUILT / f"guest-{_fingerprint()}"
    if not made.exists():
        BUILT.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILT) as scratch:
            fresh = Path(scratch) / "fresh"
            fresh.mkdir()
            _compile(fresh / "init")
            _settle(fresh, made)
    return made / "init"


def _compile(into: Path) -> None:
    sources = sorted(map(str, SOURCES.glob("*.c")))
    subprocess.run(["gcc", *FLAGS, "-O1", "-static", "-s", "-o", str(into), *sources], check=True, timeout=100)


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
