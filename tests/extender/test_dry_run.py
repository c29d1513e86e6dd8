"""A plan that keeps places in order places pods like one that looks at every node for every pod."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.requeue.dry_run import NODES_PER_SLICE, DryRun
from policies.outlook import NO_OUTLOOK, Outlook
from policies.trial_placement import Placement, TrialCluster
from tests.support.builders import snapshot_node
from tests.support.strategies import node_strategy, request_strategy
from tests.support.turn_counter import TurnCounter
from vrampack.cards.host_room import HostResources
from vrampack.cards.node import Node
from vrampack.cards.request import CardRequest, PodRequest
from vrampack.cards.tuned_policy import TunedPolicy


class KnownHosts:
    """What hosts have left; nothing is known of requests."""

    def __init__(self, **rooms: HostResources) -> None:
        self._rooms = rooms

    def get_outlook(self, _policy: TunedPolicy, host: HostResources | None) -> Outlook:
        return NO_OUTLOOK._replace(hosts=self._rooms, request_host=host)


NOTHING_KNOWN = KnownHosts()
BINPACK = TunedPolicy("binpack")
ASKED = st.tuples(request_strategy(), st.integers(0, 4), st.sets(st.sampled_from(["n0", "n1", "n2"])))


@settings(deadline=None)
@given(data=st.data())
def test_a_dry_run_places_pods_as_a_plain_evaluation_does(data: st.DataObject) -> None:
    cluster = [data.draw(node_strategy(name=f"n{number}")) for number in range(data.draw(st.integers(1, 3)))]
    grown = [(len(cluster) - position, node) for position, node in enumerate(cluster)]
    shapes = data.draw(st.lists(ASKED, min_size=1, max_size=3))
    asked = data.draw(st.lists(st.sampled_from(shapes), max_size=10))
    assert asyncio.run(place_by_dry_run(grown, asked)) == place_one_by_one(grown, asked)


async def place_by_dry_run(
    grown: list[tuple[int, Node]], asked: list[tuple[CardRequest, int, set[str]]]
) -> list[Placement | None]:
    plan = DryRun(grown, (), NOTHING_KNOWN)
    return [
        await plan.place_pod(PodRequest(request, ()), BINPACK, since=since, excluded_nodes=vain)
        for request, since, vain in asked
    ]


def place_one_by_one(
    grown: list[tuple[int, Node]], asked: list[tuple[CardRequest, int, set[str]]]
) -> list[Placement | None]:
    layout = TrialCluster(node for _, node in grown)
    return [_place_pod(layout, grown, request, since, vain) for request, since, vain in asked]


def _place_pod(
    layout: TrialCluster, grown: list[tuple[int, Node]], request: CardRequest, since: int, vain: Collection[str]
) -> Placement | None:
    names = [node.name for gained_at, node in grown if gained_at > since and node.name not in vain]
    places = [place for name in names if (place := layout.find_placement(name, request, BINPACK))]
    if not places:
        return None
    best = min(places, key=lambda place: place.sort_key)
    layout.hold_placement(best, request)
    return best


@settings(deadline=None)
@given(cluster=st.lists(node_strategy(), max_size=3), asked=st.lists(ASKED, max_size=6))
def test_a_pod_is_unplaceable_only_if_it_does_not_fit_alone(
    cluster: list[Node], asked: list[tuple[CardRequest, int, set[str]]]
) -> None:
    """Whatever was placed before."""

    async def check() -> None:
        named = [(len(cluster) - at, _named(node, f"n{at}")) for at, node in enumerate(cluster)]
        plan = DryRun(named, (), NOTHING_KNOWN)
        for request, since, _ in asked:
            await plan.place_pod(PodRequest(request, ()), BINPACK, since=since)
            alone = _place_pod(TrialCluster(node for _, node in named), named, request, since, ())
            assert await plan.is_unplaceable(PodRequest(request, ()), BINPACK, since=since) == (alone is None)

    asyncio.run(check())


def _named(node: Node, name: str) -> Node:
    return snapshot_node(name, units=[card.units for card in node.cards], used=[card.used_units for card in node.cards])


async def test_existing_placements_are_counted_in_a_dry_run() -> None:
    plan = DryRun([(1, snapshot_node())], [(Placement("n", (0,)), CardRequest(16), 16)], NOTHING_KNOWN)
    assert await plan.place_pod(PodRequest(CardRequest(16), ()), BINPACK, since=0) == Placement("n", (1,), -16)
    assert await plan.place_pod(PodRequest(CardRequest(16), ()), BINPACK, since=0) is None


async def test_the_tightest_place_is_taken_and_ties_are_broken_by_name() -> None:
    """Free 16-10=6 on `b`, 16 on the others: 5 go to `b`, then 5 to `a`, which has 11 left and is tighter than `c`."""
    grown = [
        (3, snapshot_node("c")),
        (2, snapshot_node("b", units=(16,), used=(10,))),
        (1, snapshot_node("a", units=(16,))),
    ]
    plan = DryRun(grown, (), NOTHING_KNOWN)
    laid = [await plan.place_pod(PodRequest(CardRequest(5), ()), BINPACK, since=0) for _ in range(3)]
    assert [place and place.node_name for place in laid] == ["b", "a", "a"]


async def test_a_pod_without_room_on_new_nodes_leaves_the_others_available() -> None:
    plan = DryRun([(2, snapshot_node("new", used=(16, 16))), (1, snapshot_node("old"))], (), NOTHING_KNOWN)
    assert await plan.place_pod(PodRequest(CardRequest(5), ()), BINPACK, since=1) is None
    assert await plan.place_pod(PodRequest(CardRequest(5), ()), BINPACK, since=0) == Placement("old", (0,), -16)


async def test_a_node_excluded_for_one_pod_is_available_to_the_next() -> None:
    plan = DryRun([(1, snapshot_node())], (), NOTHING_KNOWN)
    assert await plan.place_pod(PodRequest(CardRequest(5), ()), BINPACK, since=0, excluded_nodes={"n"}) is None
    assert await plan.place_pod(PodRequest(CardRequest(5), ()), BINPACK, since=0) == Placement("n", (0,), -16)


async def test_a_dry_run_of_many_shapes_yields_to_other_tasks() -> None:
    plan = DryRun([(1, snapshot_node(units=(1000,)))], (), NOTHING_KNOWN)
    for units in range(1, 6 * NODES_PER_SLICE):
        await plan.place_pod(PodRequest(CardRequest(units, count=2), ()), BINPACK, since=0)
        await plan.place_pod(PodRequest(CardRequest(1, models=frozenset({f"{units}"})), ()), BINPACK, since=0)
    turns = TurnCounter()
    assert await plan.place_pod(PodRequest(CardRequest(1), ()), BINPACK, since=0) == Placement("n", (0,), -1000)
    assert turns.stop() > 10


async def test_a_policy_that_looks_ahead_ranks_as_it_does_for_a_verb() -> None:
    """The tighter node has no CPU left, so the other one is better; for a pod that requests no CPU, the tighter one is."""
    grown = [(2, snapshot_node("full-host", used=(8,))), (1, snapshot_node("idle"))]
    rooms = {"full-host": HostResources(0, 9999), "idle": HostResources(9999, 9999)}
    plan = DryRun(grown, (), KnownHosts(**rooms))
    for cpu_milli, name in ((500, "idle"), (0, "full-host")):
        pod_request = PodRequest(CardRequest(4), (), host=HostResources(cpu_milli, 0))
        placement = await plan.place_pod(pod_request, TunedPolicy("tessellate"), since=0)
        assert placement is not None
        assert placement.node_name == name
