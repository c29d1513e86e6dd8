"""What tests compile for themselves: once per source, in a folder named after the fingerprint of its sources.

Seconds of work stay in `build/`. Minutes of work are below `cache_root`, which all checkouts share.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path


def cache_root(environ: Mapping[str, str] = os.environ) -> Path:
    """The one folder of first builds: programs of Go, kernels, drivers, bases of images, each under a key of its pins."""
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vrampack"


def fingerprint_of(*made_of: str | Path) -> str:
    """Of texts, and of files by what is in them."""
    parts = [part.read_bytes() if isinstance(part, Path) else part.encode() for part in made_of]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def build_once(made: Path, make: Callable[[Path], None]) -> Path:
    """The folder `made`, filled by `make` if it does not exist. Of concurrent builds any result is as good as another."""
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=made.parent) as scratch:
            fresh = Path(scratch) / "fresh"
            fresh.mkdir()
            make(fresh)
            _settle(fresh, made)
    return made


def _settle(fresh: Path, made: Path) -> None:
    try:
        fresh.rename(made)
    except OSError:
        if not made.exists():
            raise
