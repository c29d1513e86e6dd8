"""A second axis beside memory is counted wherever memory is: what pods hold, what a node has left, what is kept."""

from __future__ import annotations

from dataclasses import replace

from tests.support.builders import UNIT_MIB, ledger_pod, node_facts, pod_request
from vrampack.cards.amounts import Amounts
from vrampack.cards.holding import (
    Hold,
    build_bound_hold,
    build_node_from_holds,
    build_placed_hold,
    index_cards,
    refill_node,
)
from vrampack.cards.node import Node, NodeFacts, Share
from vrampack.cards.pod import Pod
from vrampack.cards.records import Record
from vrampack.cards.request import CardRequest
from vrampack.cards.rules import NO_RULES


def compute(percent: int) -> Amounts:
    return (("compute", percent),)


def two_cards() -> NodeFacts:
    facts = node_facts("n", 16, 16)
    return replace(facts, cards=tuple(replace(card, offered=compute(100)) for card in facts.cards))


def bound_pod(percent: int, *shares: Share) -> Pod:
    request = pod_request(4)
    request = replace(request, card_request=replace(request.card_request, amounts=compute(percent)))
    return ledger_pod(ask=request, node="n", record=Record("vrampack", shares) if shares else None)


def build_node(*holds: Hold) -> Node:
    return build_node_from_holds(two_cards(), holds, unit_mib=UNIT_MIB)


def list_taken(node: Node) -> list[Amounts]:
    return [card.taken for card in node.cards]


def test_a_pod_holds_what_its_record_says_and_not_what_it_asks_for() -> None:
    facts = two_cards()
    pod = bound_pod(40, Share(4, "GPU-1", 1, amounts=compute(30)))
    hold = build_bound_hold(pod, facts, index_cards(facts))
    assert list_taken(build_node(hold, hold)) == [(), compute(60)]


def test_a_pod_on_unknown_cards_counts_on_every_card_with_the_most_that_it_may_hold() -> None:
    facts = two_cards()
    for pod, most in ((bound_pod(40), 40), (bound_pod(40, Share(4, "GPU-gone", 7, amounts=compute(50))), 50)):
        assert list_taken(build_node(build_bound_hold(pod, facts, index_cards(facts)))) == [compute(most)] * 2


def test_cards_that_are_kept_for_a_pod_are_kept_on_every_axis() -> None:
    empty = build_node()
    hold = build_placed_hold(ledger_pod(), CardRequest(4, amounts=compute(25)), [empty.cards[1]])
    assert list_taken(refill_node(empty, [hold], rules=NO_RULES)) == [(), compute(25)]


def test_a_card_on_which_only_another_axis_changed_is_built_again() -> None:
    before = build_node(Hold(ledger_pod(), "bound", {0: 4, 1: 4}, {0: compute(10), 1: compute(10)}))
    holds = [Hold(ledger_pod(), "bound", {0: 4, 1: 4}, {0: compute(10), 1: compute(20)})]
    after = build_node_from_holds(two_cards(), holds, unit_mib=UNIT_MIB, known_cards=before.cards)
    assert list_taken(after) == [compute(10), compute(20)]
    assert after.cards[0] is before.cards[0]
