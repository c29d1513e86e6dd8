"""What the module adds to calls of a limited container, and that it adds nothing to others (`-s` shows the figures).

A machine without KVM is some ten times slower than its processor and slow in its own way: only ratios say something, and
only large ones. The figures of docs/enforcement.md are made by this.
"""

from __future__ import annotations

import sys
from statistics import median

from tests.machine.kernels import Kernel
from tests.shim.kmod.shares import scale_for_kernel
from tests.shim.kmod.world import BudgetPlace, KmodWorld

ROUNDS, BATCHES, CALLS = 5, 10, 300
KINDS = ("unwatched", "control", "report", "allocation")
MOST = 4.0
"""Times as long as without a limit: far above what is seen, far below what a wait or a walk through a list would cost."""


def test_what_a_limit_costs(world: KmodWorld, kernel: Kernel) -> None:
    limited, free = world.limited("a", {0: 4301}), world.unlimited("free")
    taken: dict[str, list[list[float]]] = {"limited": [], "free": []}
    for _ in range(ROUNDS):
        for name, place in (("limited", limited), ("free", free)):
            taken[name].append(measured(place, scale_for_kernel(kernel, CALLS)))
    world.forget()
    for kind, with_limit, without in zip(KINDS, medians(taken["limited"]), medians(taken["free"]), strict=True):
        sys.stdout.write(f"{kind:<10} {without:7.0f} ns without, {with_limit:7.0f} with: {with_limit / without:.2f}\n")
        assert with_limit < MOST * without


def measured(place: BudgetPlace, calls: int) -> list[float]:
    ended = place.run("cost", str(BATCHES), str(calls))
    assert (ended.code, ended.err) == (0, "")
    return [float(figure) for figure in ended.out.split()]


def medians(rounds: list[list[float]]) -> list[float]:
    return [median(column) for column in zip(*rounds, strict=True)]
