"""Where each policy puts a pod: tables with the sum beside the expectation, and what holds for every policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.policy_settings import PolicyName
from policies.evaluate import evaluate_node, sort_by_score
from policies.policy import ScoredCards
from policies.registry import POLICIES
from tests.support.builders import snapshot_node
from tests.support.strategies import node_strategy, request_strategy
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.node import Node
from vrampack.cards.request import CardRequest
from vrampack.cards.tuned_policy import TunedPolicy

PATIENT = settings(deadline=None)
"""A busy machine is no bug."""

WHOLE = CardRequest(4, whole=True)
TWO = CardRequest(4, count=2)


def score_fitting(policy: PolicyName, node: Node, request: CardRequest) -> ScoredCards:
    evaluation = evaluate_node(node, request, TunedPolicy(policy))
    assert isinstance(evaluation, ScoredCards)
    return evaluation


CARDS: dict[str, tuple[PolicyName, Node, CardRequest, list[int]]] = {
    # free 16-10=6 and 16-4=12: both fit 5, the fuller card wins
    "binpack: the fuller card": ("binpack", snapshot_node(used=(10, 4)), CardRequest(5), [0]),
    # free 6 and 12: only the second fits 8
    "binpack: skips a card that is too full": ("binpack", snapshot_node(used=(10, 4)), CardRequest(8), [1]),
    # free 4: nothing is left over
    "binpack: an exact fit": ("binpack", snapshot_node(used=(11, 12, 4), units=(16, 16, 16)), CardRequest(4), [1]),
    # free 12 and 12: the lower index
    "binpack: a tie goes to the lower index": ("binpack", snapshot_node(used=(4, 4)), CardRequest(4), [0]),
    # free 15 of 15 and 20 of 80: the small empty card keeps the room on the large one
    "binpack: mixed cards": ("binpack", snapshot_node(units=(80, 15), used=(60, 0)), CardRequest(4), [1]),
    # free 16, 5, 4: the two tightest
    "binpack: two cards": ("binpack", snapshot_node(units=(16, 16, 16), used=(0, 11, 12)), TWO, [2, 1]),
    # empty ones have 80 and 15 units: the small one is enough
    "binpack: a whole card": ("binpack", snapshot_node(units=(80, 15, 24), used=(0, 0, 1)), WHOLE, [1]),
    # sick 12 of 16 is fuller, but not to be had
    "binpack: sound cards only": ("binpack", snapshot_node(used=(12, 4), unhealthy=(0,)), CardRequest(4), [1]),
    # after placing (10+5)/16 = 0.94 and (4+5)/16 = 0.56
    "spread: the emptier card": ("spread", snapshot_node(used=(10, 4)), CardRequest(5), [1]),
    # after placing (4+4)/16 = 0.5 each: the lower index
    "spread: a tie goes to the lower index": ("spread", snapshot_node(used=(4, 4)), CardRequest(4), [0]),
    # after placing (40+4)/80 = 0.55 and (0+4)/15 = 0.27: by share, not by free units (40 and 15)
    "spread: mixed cards": ("spread", snapshot_node(units=(80, 15), used=(40, 0)), CardRequest(4), [1]),
    # after placing (4+12)/24 = 0.67 and (0+12)/15 = 0.8
    "spread: the share after placing": ("spread", snapshot_node(units=(24, 15), used=(4, 0)), CardRequest(12), [0]),
    # (0+4)/16 = 0.25, (11+4)/16 = 0.94, (6+4)/16 = 0.63: the two emptiest
    "spread: two cards": ("spread", snapshot_node(units=(16, 16, 16), used=(0, 11, 6)), TWO, [0, 2]),
    # a whole card is in use entirely, whatever was asked: equal, so the lower index
    "spread: a whole card": ("spread", snapshot_node(units=(15, 80)), WHOLE, [0]),
    # free 6 and 12
    "node-binpack: the fuller card": ("node-binpack", snapshot_node(used=(10, 4)), CardRequest(5), [0]),
    # free 16, 5, 4
    "node-binpack: two cards": ("node-binpack", snapshot_node(units=(16, 16, 16), used=(0, 11, 12)), TWO, [2, 1]),
    "node-binpack: a whole card": ("node-binpack", snapshot_node(units=(80, 15, 24), used=(0, 0, 1)), WHOLE, [1]),
}


@pytest.mark.parametrize(("policy", "node", "request_", "want"), CARDS.values(), ids=CARDS)
def test_each_policy_chooses_its_cards_within_a_node(
    policy: PolicyName, node: Node, request_: CardRequest, want: list[int]
) -> None:
    assert [card.index for card in score_fitting(policy, node, request_).cards] == want


ORDERS: dict[str, tuple[PolicyName, list[Node], CardRequest, list[str]]] = {
    # left on the card after 4: 16-10-4=2, 16-4-4=8, 16-0-4=12
    "binpack: least left on the card": (
        "binpack",
        [snapshot_node("c", used=(0, 0)), snapshot_node("b", used=(4, 0)), snapshot_node("a", used=(4, 10))],
        CardRequest(4),
        ["a", "b", "c"],
    ),
    # the card counts, not the node: 16-12=4 free on a card of an otherwise empty node beats 5 free on a full one
    "binpack: cards, not nodes": (
        "binpack",
        [snapshot_node("full", used=(16, 11)), snapshot_node("quiet", used=(0, 12))],
        CardRequest(4),
        ["quiet", "full"],
    ),
    # free on the two taken: 4+5=9 on b; on a the card with 2 free does not fit: 6+16=22
    "binpack: the sum over the cards taken": (
        "binpack",
        [snapshot_node("a", units=(16, 16, 16), used=(10, 14, 0)), snapshot_node("b", used=(12, 11))],
        TWO,
        ["b", "a"],
    ),
    # empty cards of 80, 24, 15 units
    "binpack: the smallest whole card": (
        "binpack",
        [snapshot_node("a", units=(80,)), snapshot_node("b", units=(24,)), snapshot_node("c", units=(15,))],
        WHOLE,
        ["c", "b", "a"],
    ),
    # shares after placing 4: (0+4)/80=0.05, (2+4)/16=0.375, (10+4)/24=0.58
    "spread: smallest share in use": (
        "spread",
        [
            snapshot_node("a", units=(24,), used=(10,)),
            snapshot_node("b", units=(16,), used=(2,)),
            snapshot_node("c", units=(80,)),
        ],
        CardRequest(4),
        ["c", "b", "a"],
    ),
    # the worse of the two cards: max(4/16, 14/16)=0.88 and max(8/16, 8/16)=0.5
    "spread: the worse of two cards": (
        "spread",
        [snapshot_node("a", used=(0, 10)), snapshot_node("b", used=(4, 4))],
        TWO,
        ["b", "a"],
    ),
    # a whole card is in use entirely: 1 everywhere, so by name
    "spread: whole cards are equal": (
        "spread",
        [snapshot_node("b", units=(80,)), snapshot_node("a", units=(15,))],
        WHOLE,
        ["a", "b"],
    ),
    # the node after placing 4: (16+0+4)/32=0.63, (0+12+4)/32=0.5, (0+0+4)/32=0.13
    "node-binpack: the fullest node": (
        "node-binpack",
        [snapshot_node("empty"), snapshot_node("tight", used=(0, 12)), snapshot_node("half", used=(16, 0))],
        CardRequest(4),
        ["half", "tight", "empty"],
    ),
    # (4+4)/16=0.5 of a small node against (40+4)/160=0.28 of a large one
    "node-binpack: by share": (
        "node-binpack",
        [snapshot_node("large", units=(80, 80), used=(40, 0)), snapshot_node("small", units=(16,), used=(4,))],
        CardRequest(4),
        ["small", "large"],
    ),
    # a whole card adds all its units: (0+80)/160=0.5 against (4+15)/30=0.63
    "node-binpack: a whole card adds all its units": (
        "node-binpack",
        [snapshot_node("a", units=(80, 80)), snapshot_node("b", units=(15, 15), used=(4, 0))],
        WHOLE,
        ["b", "a"],
    ),
    # two cards add twice: (0+8)/48=0.17 against (0+8)/32=0.25
    "node-binpack: two cards add twice": (
        "node-binpack",
        [snapshot_node("a", units=(16, 16, 16)), snapshot_node("b", units=(16, 16))],
        TWO,
        ["b", "a"],
    ),
}


@pytest.mark.parametrize(("policy", "cluster", "request_", "want"), ORDERS.values(), ids=ORDERS)
def test_nodes_are_ranked(policy: PolicyName, cluster: list[Node], request_: CardRequest, want: list[str]) -> None:
    assert order(policy, cluster, request_) == want


def order(policy: PolicyName, cluster: Sequence[Node], request: CardRequest) -> list[str]:
    return sort_by_score({node.name: evaluate_node(node, request, TunedPolicy(policy)) for node in cluster})


@pytest.mark.parametrize("policy", POLICIES)
def test_equal_cards_are_taken_from_one_numa_node(policy: PolicyName) -> None:
    """Four empty cards, of NUMA nodes 0, 1, 0, 1; two of 0. With the first card in use, two of 1."""
    for used, want in {(0, 0, 0, 0): [0, 2], (16, 0, 0, 0): [1, 3]}.items():
        plain = snapshot_node(units=(16,) * 4, used=used)
        node = replace(plain, cards=tuple(replace(card, numa=card.index % 2) for card in plain.cards))
        assert sorted(card.index for card in score_fitting(policy, node, CardRequest(16, count=2)).cards) == want


@pytest.mark.parametrize("policy", ["binpack", "node-binpack", "fragmentation", "tessellate"])
def test_several_cards_are_taken_from_those_in_use_first(policy: PolicyName) -> None:
    """Two cards in use and two empty ones; nothing is known of requests."""
    node = snapshot_node(units=(16,) * 4, used=(0, 0, 4, 4))
    assert sorted(card.index for card in score_fitting(policy, node, CardRequest(4, count=2)).cards) == [2, 3]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pod_without_cards_takes_none_of_a_node(policy: PolicyName) -> None:
    """Simulated pods may ask for CPU and memory alone."""
    evaluation = evaluate_node(snapshot_node("a", used=(3,)), CardRequest(0, count=0), TunedPolicy(policy))
    assert isinstance(evaluation, ScoredCards)
    assert evaluation.cards == ()


@pytest.mark.parametrize("policy", POLICIES)
def test_equal_nodes_are_ordered_by_name(policy: PolicyName) -> None:
    assert order(policy, [snapshot_node(name) for name in ("b", "a10", "a2", "c")], CardRequest(4)) == [
        "a10",
        "a2",
        "b",
        "c",
    ]


@pytest.mark.parametrize("policy", POLICIES)
def test_nodes_that_do_not_fit_are_not_in_the_order(policy: PolicyName) -> None:
    assert order(
        policy,
        [snapshot_node("full", used=(16, 16)), snapshot_node("fits"), snapshot_node("none", units=())],
        CardRequest(4),
    ) == ["fits"]


NAMES = st.sampled_from(sorted(POLICIES))
CLUSTERS = st.lists(st.sampled_from("abcdef"), unique=True, max_size=5).flatmap(
    lambda names: st.tuples(*(node_strategy(name=name) for name in names))
)


@PATIENT
@given(NAMES, node_strategy(), request_strategy())
def test_every_policy_takes_exactly_as_many_distinct_cards_as_asked_all_of_which_fit(
    policy: PolicyName, node: Node, request_: CardRequest
) -> None:
    fitting = find_fitting_cards(node, request_)
    evaluation = evaluate_node(node, request_, TunedPolicy(policy))
    if isinstance(fitting, Unfit):
        assert evaluation == fitting
        return
    assert isinstance(evaluation, ScoredCards)
    indices = [card.index for card in evaluation.cards]
    assert len(indices) == len(set(indices)) == request_.count
    assert set(evaluation.cards) <= set(fitting)


@PATIENT
@given(NAMES, CLUSTERS, request_strategy(), st.randoms(use_true_random=False))
def test_the_order_is_total_and_does_not_depend_on_the_order_asked(
    policy: PolicyName, cluster: tuple[Node, ...], request_: CardRequest, random: Random
) -> None:
    shuffled = random.sample(cluster, len(cluster))
    names = order(policy, cluster, request_)
    assert order(policy, shuffled, request_) == names
    assert sorted(names) == sorted(
        node.name for node in cluster if isinstance(find_fitting_cards(node, request_), tuple)
    )


@PATIENT
@given(node_strategy(), request_strategy())
def test_binpack_leaves_no_more_free_than_any_other_choice(node: Node, request_: CardRequest) -> None:
    fitting = find_fitting_cards(node, request_)
    if isinstance(fitting, tuple):
        free = sorted(card.free_units for card in fitting)[: request_.count]
        assert sum(card.free_units for card in score_fitting("binpack", node, request_).cards) == sum(free)
