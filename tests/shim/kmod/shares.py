"""How much of a long test a kernel runs: one kernel all of it, the others parts."""

from __future__ import annotations

from tests.machine.kernels import Kernel

PART_OF_RACES = {"6.1": 1, "6.1-debug": 10}
"""The others get a third."""


def scale_for_kernel(kernel: Kernel, number: int) -> int:
    """A debug kernel is more than ten times as slow."""
    return number // 10 if kernel.name.endswith("debug") else number


def scale_races_for_kernel(kernel: Kernel, number: int) -> int:
    """For the tests that take longest."""
    return number // PART_OF_RACES.get(kernel.name, 3)
