"""How much of a long test a kernel gets."""

from __future__ import annotations

from tests.machine.kernels import Kernel


def share(kernel: Kernel, number: int, *, most: int = 10) -> int:
    """A kernel that looks for mistakes is more than ten times as slow: it gets a part."""
    return number // most if kernel.name.endswith("debug") else number
