"""Rankings: a state is scored once, and a new forecast costs no call anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any  # fields of a card by name

import pytest

from extender.policy_settings import PolicyTuning, RankingBounds
from policies import tessellate
from policies.engine.engine import Engine
from policies.engine.host_rooms import HostRooms
from policies.engine.node_ranking import MIN_BOUNDED_STATES, MIN_GONE_STATES, STATES_AT_A_TIME
from policies.engine.node_rankings import STATES_PER_SLICE
from policies.evaluate import evaluate_node, sort_by_score
from policies.mix.forecast import build_forecast
from policies.mix.request_mix import MixedRequest, RequestMix
from policies.outlook import Outlook
from policies.policy import FittingView, PolicyTraits, Rating
from tests.policies.fake_ledger import FakeLedger
from tests.support.builders import pod_request, snapshot_node
from tests.support.call_counter import count_calls
from vrampack.cards.host_room import HostResources
from vrampack.cards.node import CardInstances, Node
from vrampack.cards.request import CardRequest, PodRequest, RequestRules
from vrampack.cards.tuned_policy import TunedPolicy


class CountingPolicy:
    """Tessellate, and how many states it scored."""

    TRAITS = PolicyTraits(looks_ahead=True, reads_hosts=True)

    def __init__(self) -> None:
        self.scored = self.bounded = 0

    def rate(self, views: Iterable[FittingView], request: CardRequest, outlook: Outlook) -> Iterator[Rating]:
        for rating in tessellate.rate(views, request, outlook):
            self.scored += 1
            yield rating

    def bound_scores(self, views: Iterable[FittingView], request: CardRequest, outlook: Outlook) -> Iterator[float]:
        for bound in tessellate.bound_scores(views, request, outlook):
            self.bounded += 1
            yield bound

    list_terms = staticmethod(tessellate.list_terms)


class RankedCluster:
    def __init__(self, *nodes: Node) -> None:
        self.ledger = FakeLedger(nodes)
        self.policy = CountingPolicy()
        self.engine = Engine(self.ledger, PolicyTuning(default="tessellate"), policies={"tessellate": self.policy})

    def count_scored(self) -> int:
        """By one more call for the same request."""
        before = self.policy.scored
        self.engine.rank_nodes(self.ledger.nodes, pod_request(4), "p", 3)
        return self.policy.scored - before


def test_equal_nodes_are_scored_once_and_a_changed_node_alone_again() -> None:
    cluster = RankedCluster(*(snapshot_node(f"n{at}") for at in range(50)), snapshot_node("used", used=(4, 0)))
    assert cluster.count_scored() == 2
    assert cluster.count_scored() == 0
    cluster.ledger.put(snapshot_node("n7", used=(8, 0)))
    assert cluster.count_scored() == 1
    cluster.ledger.put(snapshot_node("n7"))
    assert cluster.count_scored() == 0


def test_nodes_are_grouped_in_slices_ahead_of_the_first_call() -> None:
    """500 nodes get their shapes and are then grouped, 200 at a time."""
    cluster = RankedCluster(*(snapshot_node(f"n{at}") for at in range(500)))
    slices = 1
    while cluster.engine.follow_slice((), 200):
        slices += 1
    assert slices == 5
    calls = count_calls(cluster.engine.rank_nodes, cluster.ledger.nodes, pod_request(4), "p", 1)
    assert calls < len(cluster.ledger.nodes)


MARKS: dict[str, tuple[dict[str, Any], RequestRules]] = {
    "tenants": ({"tenants": frozenset({b"theirs"})}, RequestRules(tenant=b"own")),
    "pods that it takes": ({"free_pods": 0}, RequestRules()),
    "reserve": ({"reserve": 1}, RequestRules(reserves=frozenset({0}))),
}


def test_nodes_that_differ_in_free_instances_are_in_different_states() -> None:
    """On both as much is used; `a` is first by its name."""
    rooms = (
        CardInstances("GPU-0", 25, 24, are_per_container=True),
        CardInstances("GPU-0", 25, 20, are_per_container=True),
    )
    nodes = [
        snapshot_node(name, units=(16,), used=(4,), instances=(room,)) for name, room in zip("ab", rooms, strict=True)
    ]
    engine = Engine(FakeLedger(nodes), PolicyTuning(default="tessellate"))
    asked = pod_request(4)
    assert engine.rank_nodes("ab", asked, "p", 2) == ["a", "b"]
    of_two = replace(asked, card_request=replace(asked.card_request, instances=3))
    assert engine.rank_nodes("ab", of_two, "p", 2) == ["b"]


@pytest.mark.parametrize(("mark", "rules"), MARKS.values(), ids=MARKS)
def test_nodes_that_differ_only_under_rules_are_in_different_states(mark: dict[str, Any], rules: RequestRules) -> None:
    """On both as much is used; `a` is first by its name."""
    node = snapshot_node("b", units=(16,), used=(4,))
    ruled = replace(node, name="a", cards=tuple(replace(card, **mark) for card in node.cards))
    engine = Engine(FakeLedger([ruled, node]), PolicyTuning(default="tessellate"))
    asked = pod_request(4)
    assert engine.rank_nodes("ab", asked, "p", 2) == ["a", "b"]
    under_rules = replace(asked, card_request=replace(asked.card_request, rules=rules))
    assert engine.rank_nodes("ab", under_rules, "p", 2) == ["b"]


def test_a_shadow_ranks_by_the_forecast_that_is_in_force() -> None:
    """Its rankings are its own, those of the policy in force stay."""
    cluster = RankedCluster(snapshot_node("a"), snapshot_node("b", used=(4,)))
    shadow = cluster.engine.build_shadow(PolicyTuning(default="tessellate"))
    cluster.count_scored()
    shadow.rank_nodes("ab", pod_request(4), "p", 1)
    forecast = build_forecast(RequestMix({MixedRequest(CardRequest(5)): 1.0}), cluster.engine.count_cards())
    cluster.engine.set_forecast(forecast)
    assert shadow.get_outlook(TunedPolicy("tessellate"), None).forecast is forecast
    before = cluster.policy.scored
    shadow.rank_nodes("ab", pod_request(4), "p", 1)
    assert cluster.policy.scored - before == 2
    assert cluster.count_scored() == 0


def test_a_node_without_room_is_not_scored() -> None:
    cluster = RankedCluster(snapshot_node("full", used=(16, 14)), snapshot_node("open"))
    assert cluster.count_scored() == 1


def test_a_new_forecast_is_adopted_in_slices_and_costs_the_next_call_little() -> None:
    """As many states as nodes: each has another number of units in use."""
    nodes = [snapshot_node(f"n{at:03}", units=(1000,), used=(at,)) for at in range(2 * STATES_PER_SLICE + 20)]
    cluster = RankedCluster(*nodes)
    cluster.count_scored()
    forecast = build_forecast(RequestMix({MixedRequest(CardRequest(5)): 1.0}), cluster.engine.count_cards())
    steps = cluster.engine.adopt_forecast(forecast)
    before = cluster.policy.bounded
    assert len(list(islice(steps, 1))) == 1
    assert 0 < cluster.policy.bounded - before <= STATES_PER_SLICE
    assert cluster.engine.get_outlook(TunedPolicy("tessellate"), None).forecast is not forecast
    assert len(list(steps)) >= 1
    assert cluster.engine.get_outlook(TunedPolicy("tessellate"), None).forecast is forecast
    assert cluster.count_scored() <= 2 * STATES_AT_A_TIME


@pytest.mark.parametrize("changing", [1, MIN_BOUNDED_STATES])
def test_states_that_are_gone_do_not_pile_up(changing: int) -> None:
    """None of them is ever among the best three."""
    cluster = RankedCluster(*(snapshot_node(f"n{at}", units=(1000,), used=(990,)) for at in range(3)))
    for used in range(800 // changing):
        for at in range(changing):
            cluster.ledger.put(snapshot_node(f"m{at:02}", units=(1000,), used=(used + 10 * at,)))
        cluster.count_scored()
    (ranking,) = cluster.engine._rankings._rankings.values()
    kept = [state for states in ranking._buckets.values() for state in states]
    assert len(kept) + len(ranking._bounded) <= 4 * len(cluster.engine._seen.states) + MIN_GONE_STATES
    assert len(ranking._worst_scores) <= len(kept)


def test_only_states_that_may_be_best_are_scored_among_many() -> None:
    """Each node has another number of units in use; the tightest of them are the best."""
    cluster = RankedCluster(*(snapshot_node(f"n{at:03}", units=(1000,), used=(at,)) for at in range(400)))
    assert 0 < cluster.count_scored() <= 2 * STATES_AT_A_TIME
    assert cluster.policy.bounded == 400


REQUESTS = [
    *[CardRequest(units) for units in (2, 5, 9)],
    CardRequest(3, count=2),
    CardRequest(4, whole=True),
    CardRequest(4, models=frozenset("A")),
    CardRequest(16, count=2, whole=True, models=frozenset("A")),
]
RANKED = [
    *[TunedPolicy("tessellate", (), percent) for percent in (None, None, None, 60)],
    *[TunedPolicy(name, (), percent) for name in ("binpack", "node-binpack", "spread") for percent in (None, 60)],
]


@pytest.mark.parametrize(("seed", "policy"), list(enumerate(RANKED)))
def test_many_states_are_ranked_as_if_evaluated_one_by_one(seed: int, policy: TunedPolicy) -> None:
    """Most of them are never scored, and the order of the others is that of a plain evaluation, to the last one asked for."""
    chance = Random(seed)
    nodes = [
        snapshot_node(
            f"n{at:03}",
            units=[16, 16, chance.choice([16, 24])],
            used=[chance.choice([0, 0, chance.randrange(17)]) for _ in range(3)],
            models=[chance.choice("AB")] * 3,
        )
        for at in range(300)
    ]
    hosts = HostRooms()
    for node in nodes[:: chance.choice([1, 2])]:
        hosts.put_room(node.name, HostResources(chance.randrange(0, 16_000), 99_999))
    tuning = PolicyTuning(default=policy.name, bounds=RankingBounds(card_use_percent=policy.card_use_percent))
    engine = Engine(FakeLedger(nodes), tuning, hosts=hosts)
    mixed = [
        MixedRequest(CardRequest(units, models=chance.choice([None, frozenset("A")])), HostResources(units * 400, 1))
        for units in (3, 5, 7, 16)
    ]
    cards = {("A", 16): 300, ("B", 16): 300, ("A", 24): 50, ("B", 24): 50}
    engine.set_forecast(build_forecast(RequestMix({each: chance.random() for each in mixed}), cards))
    for request in REQUESTS:
        asked = PodRequest(request, (), host=HostResources(2000, 1))
        outlook = engine.get_outlook(policy, asked.host)
        plain = sort_by_score({node.name: evaluate_node(node, request, policy, outlook) for node in nodes})
        if seed % 2:
            list(engine.prepare_request(asked, "p"))
        assert engine.rank_nodes([node.name for node in nodes], asked, "p", 20) == plain[:20]
