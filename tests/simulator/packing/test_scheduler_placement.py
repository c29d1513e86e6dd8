"""What kube-scheduler does by itself, and pods placed through the extender's program over HTTP."""

from __future__ import annotations

from random import Random

import pytest

from policies.registry import POLICIES
from vrampack.cards.host_room import HostResources
from vrampack.cards.request import CardRequest
from vrampack.cards.tuned_policy import TunedPolicy
from vrampack.simulator.packing.http_cluster import HttpCluster, insist_on_answer
from vrampack.simulator.packing.measurement import EXACT_HOSTS
from vrampack.simulator.packing.packed_cluster import SchedulerPlacedCluster, SimulatedNode, SimulatedPod
from vrampack.simulator.packing.scheduler_choice import (
    SchedulerChoice,
    ScoredHost,
    charge_host,
    count_wanted_nodes,
    score_host,
)
from vrampack.simulator.scheduling.extender_client import ExtenderError

HOST = HostResources(8000, 8192)
HALF_HOST = HostResources(4000, 4096)
HALF = SimulatedPod(CardRequest(500), HostResources(1000, 1024))
NO_CARD = SimulatedPod(None, HostResources(3000, 1024))


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    # 50 - 1213/125 = 41 %; at 5,625 nodes 5 % are left
    [(99, 99), (120, 100), (1213, 497), (14556, 727)],
)
def test_the_scheduler_stops_after_a_number_of_fitting_nodes(nodes: int, wanted: int) -> None:
    assert count_wanted_nodes(nodes) == wanted


@pytest.mark.parametrize(
    ("requested", "pod", "scores"),
    [
        # 75 % left of both; they were alike before and are after, so 50 + (50 + 0) / 2
        (HostResources(0, 0), HostResources(2000, 2048), (75, 75)),
        # 0 and 72 % left, by 200 MiB for what asks for none; apart by 0.5 before, by 0.75 after: 50 + (50 + 62 - 75) // 2
        (HostResources(4000, 0), HostResources(4000, 2048), (36, 68)),
        # the pod balances what was already on the host: 75 before, 100 after
        (HostResources(4000, 0), HostResources(0, 4096), (47, 87)),
        # counts as 100 m and 200 MiB when what is left is looked at, and has no balance
        (HostResources(0, 0), HostResources(0, 0), (97, 0)),
    ],
)
def test_hosts_are_scored(requested: HostResources, pod: HostResources, scores: tuple[int, int]) -> None:
    host = charge_host(ScoredHost(HOST), requested) if any(requested) else ScoredHost(HOST)
    assert score_host(host, pod) == scores


def test_the_search_continues_where_the_last_one_stopped() -> None:
    """It starts at the first node that fits behind those found by the last search."""
    choice = SchedulerChoice({f"n{at:03}": HOST for at in range(200)}, Random(1))
    choice.charge_host("n100", HOST)
    first, second = (choice.list_feasible_nodes(HALF_HOST) for _ in range(2))
    assert (first[0], second[0]) == ("n000", "n101")
    assert len(first) == len(second) == 100


def test_pods_without_cards_are_spread_by_the_scheduler_and_others_packed() -> None:
    nodes = [SimulatedNode(name, (1000,), "A", HOST) for name in "ab"]
    cluster = SchedulerPlacedCluster(
        nodes, TunedPolicy("tessellate"), None, policies=POLICIES, host_step=EXACT_HOSTS, random=Random(1)
    )
    assert {cluster.place_pod(f"cpu-{at}", NO_CARD) for at in range(2)} == {"a", "b"}
    assert cluster.place_pod("x", HALF) == cluster.place_pod("y", HALF)


def test_pods_go_through_the_program_and_its_api_server() -> None:
    """Two halves share a card, a pod of two cards finds its node, and a third one none; one without cards is bound, too."""
    nodes = [SimulatedNode("one", (1000,), "A", HOST), SimulatedNode("two", (1000, 1000), "B", HOST)]
    cluster = HttpCluster(nodes, TunedPolicy("tessellate"), Random(1))
    try:
        both = SimulatedPod(CardRequest(1000, 2), HostResources(1000, 1024))
        model = SimulatedPod(CardRequest(500, models=frozenset("A")), HostResources(1000, 1024))
        assert cluster.place_pod("a", model) == "one"
        assert cluster.place_pod("b", HALF) == "one"
        assert cluster.place_pod("c", both) == "two"
        assert cluster.place_pod("d", HALF) is None
        assert cluster.place_pod("e", NO_CARD) in ("one", "two")
    finally:
        cluster.close()


async def test_an_extender_that_is_not_ready_is_asked_again() -> None:
    """As after a run was stopped for minutes: the watch must receive something first."""
    failures = [ExtenderError("not ready"), ExtenderError("not ready")]

    async def answer_at_last() -> str:
        if failures:
            raise failures.pop()
        return "bound"

    assert await insist_on_answer(answer_at_last) == "bound"
