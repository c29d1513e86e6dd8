"""How many instances pods take of the cards that they hold: by pod or by container, and MIG instances share their GPU's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.support.builders import UNIT_MIB, card_facts, ledger_pod, pod_request
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.holding import Hold, build_node_from_holds, refill_node
from vrampack.cards.node import CardFacts, Node, NodeFacts
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import CardRequest
from vrampack.cards.rules import NO_RULES

A, B = (replace(card, instances=25) for card in card_facts(80, 80))


def a_hold(name: str, units: Mapping[int, int], *, instances: int = 1, unplaced: str = "") -> Hold:
    """Of a pod that takes so many instances where containers have some of their own."""
    asked = pod_request(1)
    asked = replace(asked, card_request=replace(asked.card_request, instances=instances))
    return Hold(ledger_pod(name, ask=asked), "bound", units, unplaced_reason=unplaced)


def build(*holds: Hold, cards: tuple[CardFacts, ...] = (A, B), has_hook: bool = False) -> Node:
    return build_node_from_holds(NodeFacts("n", cards, has_hook=has_hook), holds, unit_mib=UNIT_MIB)


def count_free(node: Node) -> list[int | None]:
    return [None if card.instances is None else card.instances.free for card in node.cards]


def test_each_pod_takes_one_where_no_hook_runs() -> None:
    assert count_free(build(a_hold("p", {0: 1}, instances=3), a_hold("q", {0: 1, 1: 1}))) == [23, 24]


def test_containers_take_some_of_their_own_where_it_does() -> None:
    # 25 - 3 - 1 and 25 - 1
    assert count_free(build(a_hold("p", {0: 1}, instances=3), a_hold("q", {0: 1, 1: 1}), has_hook=True)) == [21, 24]


def test_a_pod_on_no_known_card_takes_them_of_every_card() -> None:
    assert count_free(build(a_hold("p", {0: 1, 1: 1}, unplaced="it has no record"))) == [24, 24]


def test_mig_instances_share_those_of_their_gpu() -> None:
    """A pod on two of them takes them once."""
    cards = (replace(A, mig_parent="GPU-p"), replace(B, mig_parent="GPU-p"), CardFacts(2, 80, 81920, "GPU-2"))
    assert count_free(build(a_hold("p", {0: 1, 1: 1}), a_hold("q", {1: 1}), cards=cards)) == [23, 23, None]


def test_the_26th_pod_fits_no_card_of_25_instances_until_one_leaves() -> None:
    holds = [a_hold(f"p{at}", {0: 1}) for at in range(25)]
    node = build(*holds, cards=(A,))
    assert find_fitting_cards(node, CardRequest(1)) == Unfit(UnfitReason.INSTANCE_LIMIT)
    assert find_fitting_cards(refill_node(node, holds[1:], rules=NO_RULES), CardRequest(1)) != Unfit(
        UnfitReason.INSTANCE_LIMIT
    )


def test_a_card_that_holds_as_many_units_of_other_pods_is_counted_again() -> None:
    facts = NodeFacts("n", (A, B))
    first = build_node_from_holds(facts, [a_hold("p", {0: 2})], unit_mib=UNIT_MIB)
    pods = [a_hold("q", {0: 1}), a_hold("r", {0: 1})]
    again = build_node_from_holds(facts, pods, unit_mib=UNIT_MIB, known_cards=first.cards)
    assert count_free(again) == [23, 25]
