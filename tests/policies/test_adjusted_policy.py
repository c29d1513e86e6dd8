"""Weights and bounds of a profile: what they change, and that equal ones share a ranking and others do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.policy_settings import PolicyTuning
from policies.adjusted_policy import OVER_BOUND, OVER_BOUND_TERM
from policies.engine.engine import Engine
from policies.evaluate import evaluate_node, list_score_terms, sort_by_score
from policies.policy import ScoredCards
from tests.policies.fake_ledger import FakeLedger
from tests.support.builders import pod_request, snapshot_node
from vrampack.cards.node import Node
from vrampack.cards.request import CardRequest, PodRequest, ProfileChoice
from vrampack.cards.tuned_policy import TunedPolicy

BOUND = TunedPolicy("binpack", (), 75)
NODES = {
    # 4 more units fill a card of 16 to 16, 10 and 4: 75 % of it are 12
    "full": snapshot_node("full", units=(16,), used=(12,)),
    "half": snapshot_node("half", units=(16,), used=(6,)),
    "free": snapshot_node("free", units=(16,), used=(0,)),
}


def rank(tuned: TunedPolicy, request: CardRequest) -> list[str]:
    return sort_by_score({name: evaluate_node(node, request, tuned) for name, node in NODES.items()})


def test_cards_past_the_bound_rank_last_in_the_order_of_the_policy() -> None:
    """Binpack takes the fullest: first of those within, then of the others."""
    assert rank(TunedPolicy("binpack"), CardRequest(4)) == ["full", "half", "free"]
    assert rank(BOUND, CardRequest(4)) == ["half", "free", "full"]
    assert rank(BOUND, CardRequest(10)) == ["free", "half"]


def test_a_bound_refuses_nothing() -> None:
    """13 of 16 are past it on every card, and a whole-card request is not bounded."""
    assert rank(BOUND, CardRequest(13)) == ["free"]
    whole = evaluate_node(NODES["free"], CardRequest(16, whole=True), BOUND)
    assert isinstance(whole, ScoredCards)
    assert whole.score > -OVER_BOUND


def test_within_a_node_cards_past_the_bound_come_last() -> None:
    node = snapshot_node(units=(16, 16, 16), used=(12, 6, 0))
    assert choose(node, CardRequest(4)) == [1]
    assert choose(node, CardRequest(4, count=2)) == [1, 2]
    assert choose(node, CardRequest(4, count=3)) == [0, 1, 2]


def choose(node: Node, request: CardRequest) -> list[int]:
    scored = evaluate_node(node, request, BOUND)
    assert isinstance(scored, ScoredCards)
    return sorted(card.index for card in scored.cards)


def test_a_bound_adds_its_own_score_term() -> None:
    scored = evaluate_node(NODES["full"], CardRequest(4), BOUND)
    assert isinstance(scored, ScoredCards)
    terms = list_score_terms(BOUND, NODES["full"], scored, CardRequest(4))
    assert {term.name: term.value for term in terms} == {OVER_BOUND_TERM: -OVER_BOUND, "free on card 0": -4}


OPENING = {
    # Waste, while nothing is known of the mix, is 8 * 0.065 * what stays free in cards (the mean card is taken for one unit):
    # 8 of 16 left on the used card cost 4.16, 2 of 4 on the empty one 1.04, and opening it 1.18
    "its own: the small card is opened": (TunedPolicy("tessellate"), "small"),
    # 1.04 + 4 against 4.16
    "dearer: the used card": (TunedPolicy("tessellate", (("opening", 4.0),)), "used"),
}


@pytest.mark.parametrize(("tuned", "want"), OPENING.values(), ids=OPENING)
def test_a_weight_moves_the_choice(tuned: TunedPolicy, want: str) -> None:
    nodes = [snapshot_node("used", units=(16,), used=(6,)), snapshot_node("small", units=(4,))]
    assert sort_by_score({node.name: evaluate_node(node, CardRequest(2), tuned) for node in nodes})[0] == want


def ask(tuned: TunedPolicy, profile: str = "any") -> PodRequest:
    return replace(pod_request(2), profile=ProfileChoice(profile, tuned))


@pytest.mark.parametrize("name", ["binpack", "tessellate"])
def test_equal_policies_share_a_ranking_and_others_do_not(name: str) -> None:
    engine = Engine(FakeLedger(NODES.values()), PolicyTuning())
    plain = TunedPolicy(name)
    for tuned, profile in [
        (plain, "a"),
        (plain, "b"),
        (TunedPolicy(name, (), 75), "c"),
        (TunedPolicy(name, (), 80), "d"),
    ]:
        engine.rank_nodes(NODES, ask(tuned, profile), "p", 3)
    assert len(engine._rankings._rankings) == 3


def test_two_profiles_of_one_policy_rank_each_by_its_own_weights() -> None:
    nodes = [snapshot_node("used", units=(16,), used=(6,)), snapshot_node("small", units=(4,))]
    engine = Engine(FakeLedger(nodes), PolicyTuning())
    names = ["used", "small"]
    for _ in range(2):
        for tuned, want in OPENING.values():
            assert engine.rank_nodes(names, ask(tuned), "p", 1) == [want]
