"""SHA256SUMS, as `sha256sum --check` reads it."""

from __future__ import annotations

import hashlib
from pathlib import Path

CHECKSUMS = "SHA256SUMS"


def write_checksums(folder: Path, *, skipped: tuple[str, ...] = ()) -> Path:
    """Of every file of the folder but itself and those; returns its path."""
    target = folder / CHECKSUMS
    paths = sorted(path for path in folder.iterdir() if path.name not in (CHECKSUMS, *skipped))
    target.write_text("".join(f"{compute_sha256(path)}  {path.name}\n" for path in paths), encoding="utf-8")
    return target


def compute_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
