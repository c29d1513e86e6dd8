"""What kube-scheduler does by itself, and pods placed through the extender's program over HTTP."""

from __future__ import annotations

from random import Random

import pytest

from policies.registry import POLICIES
from vrampack.cards.host_room import HostResources
from vrampack.cards.request import CardRequest
from vrampack.cards.tuned_policy import TunedPolicy
from vrampack.simulator.packing.http_cluster import HttpCluster
from vrampack.simulator.packing.measurement import EXACT_HOSTS
from vrampack.simulator.packing.packed_cluster import SchedulerPlacedCluster, SimulatedNode, SimulatedPod
from vrampack.simulator.packing.scheduler_choice import SchedulerChoice, count_wanted_nodes, score_host

HOST = HostResources(8000, 8192)
HALF = SimulatedPod(CardRequest(500), HostResources(1000, 1024))
NO_CARD = SimulatedPod(None, HostResources(3000, 1024))


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    # 50 - 1213/125 = 41 %; at 5,625 nodes 5 % are left
    [(99, 99), (120, 100), (1213, 497), (14556, 727)],
)
def test_the_scheduler_looks_for_so_many_nodes(nodes: int, wanted: int) -> None:
    assert count_wanted_nodes(nodes) == wanted


def test_an_empty_and_balanced_host_scores_best() -> None:
    """8 CPUs and 8 GiB, of which a pod takes a quarter: 75 of both left, and both alike, so 75 + 100."""
    pod = HostResources(2000, 2048)
    assert score_host(HOST, HOST, pod) == 175
    # 2 CPUs and all memory left: (0 + 75) / 2 = 37, and apart by 0.75: 62
    assert score_host(HOST, HostResources(2000, 8192), pod) == 99


def test_the_search_goes_on_where_it_stopped() -> None:
    choice = SchedulerChoice({f"n{at:03}": HOST for at in range(200)}, Random(1))
    first, second = (choice.list_feasible_nodes(lambda _: True) for _ in range(2))
    assert (first[0], second[0]) == ("n000", "n100")
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
