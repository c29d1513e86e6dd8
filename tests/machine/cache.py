"""Keeps what takes minutes to fetch or to build outside the tree, under a name derived from what it is built from."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.build_cache import cache_root, fingerprint_of
from tests.support.build_times import timed_build

UNUSED_SECONDS = 14 * 24 * 3600
"""Two checkouts may need different ones in turn: what was used in the last fortnight stays."""


def cache_key(*made_of: str | Path) -> str:
    """A hash of texts, and of the content of files."""
    return fingerprint_of(*made_of)


def cached(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder KIND-KEY; if it is missing, `make` fills a temporary one. If two processes ask at once, one waits."""
    cache = cache_root() / "kernels"
    wanted = cache / f"{kind}-{key}"
    if not wanted.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with timed_build(), (cache / f".{kind}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not wanted.is_dir():
                _make(wanted, make)
    os.utime(wanted)
    _forget_unused(cache)
    return wanted


def _make(wanted: Path, make: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory(dir=wanted.parent, prefix="partial-", ignore_cleanup_errors=True) as folder:
        partial = Path(folder) / wanted.name
        partial.mkdir()
        make(partial)
        partial.rename(wanted)


def _forget_unused(cache: Path) -> None:
    for folder in (each for each in cache.iterdir() if each.is_dir()):
        if time.time() - folder.stat().st_mtime > UNUSED_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)
