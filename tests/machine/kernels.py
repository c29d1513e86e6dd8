"""Kernels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Kernel:
    """One that a machine can run, and that modules can be built for."""

    name: str
    """`6.1`, `6.1-debug`."""
    release: str
    """What uname says: `6.1.0-56-cloud-amd64`."""
    vmlinuz: Path
    build: Path
    """The folder for `make -C`."""
