"""A churn with and without a queue, on a cluster of two cards."""

from __future__ import annotations

from functools import partial

import pytest

from vrampack.cards.tuned_policy import TunedPolicy
from vrampack.simulator.packing import card_benchmark
from vrampack.simulator.packing.card_benchmark import CardMeasures, build_mix, run_churn
from vrampack.simulator.packing.measurement import EXACT_HOSTS, SIMULATED_POLICIES
from vrampack.simulator.packing.packed_cluster import PackedCluster, SimulatedNode

WEIGHTS = {5: 1.0, 16: 1.0}


def churn(load: float, *, has_queue: bool) -> CardMeasures:
    nodes = [SimulatedNode(name, (16,), "A", None) for name in "ab"]
    build = partial(
        PackedCluster,
        policy=TunedPolicy("binpack"),
        mix=build_mix(WEIGHTS),
        policies=SIMULATED_POLICIES,
        host_step=EXACT_HOSTS,
    )
    return run_churn(nodes, WEIGHTS, load, 1, build, has_queue=has_queue)


def test_with_a_queue_nothing_is_lost_and_pods_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a load of 0.5 there is room for all sooner or later; the few pods that still wait at the end are not placed."""
    monkeypatch.setattr(card_benchmark, "ARRIVALS_PER_CARD", 600)
    monkeypatch.setattr(card_benchmark, "ARRIVALS_PER_SAMPLE", 10)
    lost, queued = churn(0.5, has_queue=False), churn(0.5, has_queue=True)
    assert lost.placed_gib < 85
    assert lost.wait == 0
    assert queued.placed_gib > 95
    assert queued.allocation > lost.allocation
    assert queued.wait > 100
