"""What the module adds to calls of a limited container, and to others while it is loaded (`-s` shows the figures).

A machine without KVM is some ten times slower than its processor and slow in its own way: only ratios say something, and
only large ones. Of the kernel for debugging they say nothing. The figures of docs/enforcement.md are made by this.
"""

from __future__ import annotations

import sys

import pytest

from tests.shim.kmod.world import BudgetPlace, KmodWorld
from tests.support.polling import wait_until

ROUNDS, BATCHES, CALLS = 5, 10, 60
"""Short batches, of which the fastest counts: one of 20 ms is seldom left alone on a busy machine."""
KINDS = ("unwatched", "control", "report", "allocation")
PLACES = ("alone", "beside", "limited")
"""Without a limit while no container has one, without a limit beside a container that has one, and in that container."""
MOST = 8.0
"""Times as long as alone: 2.2 is seen, and up to 4.0 beside two busy loops. A wait or a walk through a list would cost far more."""


@pytest.mark.parametrize("kernel", ["5.10", "6.1", "6.12"], indirect=True)
def test_the_cost_of_a_limit_is_small(world: KmodWorld) -> None:
    free = world.unlimited("free")
    taken: dict[str, list[list[float]]] = {name: [] for name in PLACES}
    for _ in range(ROUNDS):
        wait_until(lambda: world.state()["copies"] == "unchecked", what="that no container is limited any more")
        taken["alone"].append(measured(free, CALLS))
        limited = world.limited("a", {0: 4301})
        taken["beside"].append(measured(free, CALLS))
        taken["limited"].append(measured(limited, CALLS))
        world.forget()
    figures = zip(KINDS, *(fastest(taken[name]) for name in PLACES), strict=True)
    for kind, alone, beside, within in figures:
        sys.stdout.write(
            f"{kind:<10} {alone:7.0f} ns alone, {beside:7.0f} beside: {beside / alone:.2f},"
            f" {within:7.0f} limited: {within / alone:.2f}\n"
        )
        assert max(beside, within) < MOST * alone


def measured(place: BudgetPlace, calls: int) -> list[float]:
    ended = place.run("cost", str(BATCHES), str(calls))
    assert (ended.code, ended.err) == (0, "")
    return [float(figure) for figure in ended.out.split()]


def fastest(rounds: list[list[float]]) -> list[float]:
    return [min(column) for column in zip(*rounds, strict=True)]
