"""Which pods must go besides those already leaving: by hand, and against brute force over every set on a small node."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from extender.preemption import victims
from extender.preemption.victims import find_added_victims, get_victim_order
from tests.support.builders import ledger_pod, pod_request, snapshot_node
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.holding import Hold, HoldState
from vrampack.cards.node import CardInstances, Node
from vrampack.cards.payment import compute_payment
from vrampack.cards.request import CardRequest

PREEMPTOR = 100
"""Its priority."""


def a_hold(uid: str, priority: int, units: dict[int, int], state: HoldState = "bound", unplaced: str = "") -> Hold:
    return Hold(replace(ledger_pod(uid), priority=priority), state, units, unplaced_reason=unplaced)


def wants(units: int, *, count: int = 1, whole: bool = False) -> CardRequest:
    """So many units on each card."""
    return pod_request(units * count, count=count, whole=whole).card_request


def found(
    holds: Iterable[Hold], request: CardRequest, going: Collection[str] = (), node: Node | None = None
) -> list[str] | None:
    """On two cards of 16 units."""
    added = find_added_victims(node or snapshot_node(), holds, request=request, priority=PREEMPTOR, leaving_uids=going)
    return None if added is None else [hold.pod.uid for hold in added]


def test_victims_free_instances_too() -> None:
    """Half of the memory is free, and none of 3 instances."""
    node = snapshot_node(units=(16,), instances=(CardInstances("GPU-0", 3),))
    holds = [a_hold("a", 5, {0: 3}), a_hold("b", 4, {0: 3}), a_hold("c", 3, {0: 2})]
    assert found(holds, wants(4), node=node) == ["c"]
    assert found(holds[1:], wants(4), node=node) == []


def test_victims_free_more_than_memory() -> None:
    """Half of the memory is free, and a tenth of the compute."""
    node = snapshot_node(units=(16,))
    node = replace(node, cards=(replace(node.cards[0], offered=(("compute", 100),), taken=(("compute", 90),)),))
    holds = [
        replace(a_hold("a", 5, {0: 2}), amounts={0: (("compute", 60),)}),
        replace(a_hold("b", 4, {0: 2}), amounts={0: (("compute", 30),)}),
        a_hold("c", 3, {0: 4}),
    ]
    assert found(holds, replace(wants(4), amounts=(("compute", 40),)), node=node) == ["b"]
    assert found(holds, replace(wants(4), amounts=(("compute", 65),)), node=node) == ["a"]
    assert found(holds, wants(4), node=node) == []


def test_pods_for_several_whole_cards_of_one_size_evict_the_fewest() -> None:
    """Two cards with a pod each, two with eight pods of a lower priority. Only where sizes differ does the choice of cards count."""
    holds = [a_hold("a", 2, {0: 16}), a_hold("b", 2, {1: 16})]
    holds += [a_hold(f"{card}-{number}", 1, {card: 2}) for card in (2, 3) for number in range(8)]
    request = replace(wants(16, count=2, whole=True), payment=compute_payment(32, 2))
    assert found(holds, request, node=snapshot_node(units=(16,) * 4)) == ["a", "b"]
    # 31 units pay for one card of 15 and one of 16
    holds = [a_hold("small", 9, {0: 15}), a_hold("b", 5, {1: 16}), a_hold("c", 1, {2: 16})]
    request = replace(wants(15, count=2, whole=True), payment=compute_payment(31, 2))
    assert found(holds, request, node=snapshot_node(units=(15, 16, 16))) == ["small", "c"]


FULL = [a_hold("a", 1, {0: 8}), a_hold("b", 2, {0: 8}), a_hold("c", 3, {1: 8}), a_hold("d", 4, {1: 8})]
CASES = {
    "room already": (FULL[:3], wants(8), (), []),
    "the lowest priority": (FULL, wants(8), (), ["a"]),
    "what is going suffices": (FULL, wants(8), {"d"}, []),
    # b and d free 8 on each card; 16 on one card need a as well, which is lower than c
    "what is going frees no single card": (FULL, wants(16), {"b", "d"}, ["a"]),
    "two of one card, most important first": (FULL, wants(16), (), ["b", "a"]),
    "both cards": (FULL, wants(8, count=2), (), ["c", "a"]),
    "fewest before lowest": ([a_hold("a", 1, {0: 8}), a_hold("b", 1, {0: 8}), a_hold("c", 9, {1: 16})], 16, (), ["c"]),
    # of one priority the smaller that is enough, then the uid: 16-12 = 4 are free on card 0
    "smallest of equals": ([a_hold("a", 1, {0: 8}), a_hold("b", 1, {0: 4}), a_hold("c", 1, {1: 16})], 8, (), ["b"]),
    "uid of equals": ([a_hold("b", 1, {0: 16}), a_hold("a", 1, {1: 16})], wants(1), (), ["a"]),
    "never an equal priority": ([a_hold("a", 100, {0: 16}), a_hold("b", 200, {1: 16})], wants(1), (), None),
    "an equal one stays, a lower one goes": ([a_hold("a", 100, {0: 16}), a_hold("b", 99, {1: 16})], 1, (), ["b"]),
    "leaving pods are going": ([a_hold("a", 200, {0: 16}, "terminating"), a_hold("b", 1, {1: 16})], wants(16), (), []),
    "reserved places stay": ([a_hold("a", 1, {0: 16}, "reserved"), a_hold("b", 9, {1: 16})], wants(1), (), ["b"]),
    "unconfirmed places stay": ([a_hold("a", 1, {0: 16}, "unconfirmed"), a_hold("b", 9, {1: 16})], wants(1), (), ["b"]),
    "a pod on no known card frees all": ([a_hold("a", 5, {0: 8, 1: 8}, unplaced="?"), *FULL[1:]], wants(8), (), ["b"]),
    "one on both cards is fewer than two": (
        [a_hold("a", 5, {0: 8, 1: 8}), FULL[1], FULL[3]],
        wants(8, count=2),
        (),
        ["a"],
    ),
    "and must go where it is in the way": ([a_hold("a", 5, {0: 8, 1: 8}), a_hold("b", 1, {0: 4})], 16, (), ["a"]),
    "whole needs all of one card": (FULL, wants(1, whole=True), (), ["b", "a"]),
    # 20 of 16 are held: 4 too many and 4 wanted
    "an overcommitted card": ([a_hold("a", 1, {0: 4}), a_hold("b", 2, {0: 16}), FULL[2], FULL[3]], 12, (), ["b"]),
    "larger than any card": (FULL, wants(17), (), None),
    "too many cards": (FULL, wants(1, count=3), (), None),
}


@pytest.mark.parametrize(("holds", "request_", "going", "want"), CASES.values(), ids=CASES)
def test_victims_match_the_table(
    holds: list[Hold], request_: CardRequest | int, going: set[str], want: list[str] | None
) -> None:
    request = wants(request_) if isinstance(request_, int) else request_
    assert found(holds, request, going) == want


@pytest.mark.parametrize(
    "node", [snapshot_node(unhealthy=(0,)), snapshot_node(cordoned=(0,)), snapshot_node(units=(7, 16))]
)
def test_a_card_too_small_when_empty_yields_no_victims(node: Node) -> None:
    assert found(FULL, wants(8), node=node) == ["c"]


def test_among_many_pods_the_fewest_victims_of_higher_priority_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """6 units by two pods: 3 + 3 of priority 2, or 5 of priority 2 and 2 of priority 1, which is less."""
    monkeypatch.setattr(victims, "MAX_SETS", 0)
    pods = {"a": (2, 5), "b": (2, 3), "c": (2, 3), "d": (1, 2), "e": (1, 2), "f": (PREEMPTOR, 1)}
    holds = [a_hold(uid, priority, {0: units}) for uid, (priority, units) in pods.items()]
    assert found(holds, wants(6), node=snapshot_node(units=(16,))) == ["a", "e"]


def test_no_pod_is_evicted_on_a_node_with_a_problem() -> None:
    assert found(FULL, wants(8), node=replace(snapshot_node(), problem="another unit")) is None


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Node, list[Hold], CardRequest, frozenset[str]]:
    """Up to three small cards and seven pods, some on several cards, some in the way, some leaving."""
    units = draw(st.lists(st.integers(1, 8), min_size=1, max_size=3))
    sick = draw(st.sets(st.integers(0, len(units) - 1), max_size=1))
    states: st.SearchStrategy[HoldState] = st.sampled_from(["bound"] * 6 + ["terminating", "reserved"])
    on_cards = st.dictionaries(st.integers(0, len(units) - 1), st.integers(0, 8), min_size=1)
    holds = [
        a_hold(f"p{at}", draw(st.integers(98, 101)), draw(on_cards), draw(states))
        for at in range(draw(st.integers(0, 7)))
    ]
    ask = pod_request(draw(st.integers(1, 8)), whole=draw(st.booleans()))
    request = replace(ask.card_request, count=draw(st.integers(1, 2)))
    going = draw(st.sets(st.sampled_from([hold.pod.uid for hold in holds]), max_size=2)) if holds else set()
    return snapshot_node(units=units, unhealthy=sick), holds, request, frozenset(going)


def fits(node: Node, holds: Iterable[Hold], request: CardRequest) -> bool:
    """What filter would say with only these pods there."""
    holds = list(holds)
    cards = tuple(replace(card, used_units=sum(hold.units.get(card.index, 0) for hold in holds)) for card in node.cards)
    return not isinstance(find_fitting_cards(replace(node, cards=cards), request), Unfit)


def without(holds: Iterable[Hold], gone: Collection[Hold]) -> list[Hold]:
    return [hold for hold in holds if hold not in gone]


def by_brute_force(node: Node, holds: list[Hold], request: CardRequest) -> list[Hold] | None:
    """The first in the order of all sets of lower bound pods without which the request fits."""
    lower = [hold for hold in holds if hold.state == "bound" and hold.pod.priority < PREEMPTOR]
    every = [chosen for size in range(len(lower) + 1) for chosen in combinations(lower, size)]
    enough = [list(chosen) for chosen in every if fits(node, without(holds, chosen), request)]
    return min(enough, key=get_victim_order, default=None)


def list_remaining_holds(holds: Iterable[Hold], going: Collection[str]) -> list[Hold]:
    return [hold for hold in holds if hold.state != "terminating" and hold.pod.uid not in going]


@given(clusters())
@settings(max_examples=150, deadline=None)
@example(
    (
        snapshot_node(units=(4, 4)),
        [a_hold(f"p{at}", 99, {0: 1, 1: 1}) for at in range(4)],
        wants(4, count=2),
        frozenset(),
    )
)
def test_the_best_victim_set_is_found(case: tuple[Node, list[Hold], CardRequest, frozenset[str]]) -> None:
    node, holds, request, going = case
    rest = list_remaining_holds(holds, going)
    shared = sum(hold.state == "bound" and sum(map(bool, hold.units.values())) > 1 for hold in rest)
    added = find_added_victims(node, holds, request=request, priority=PREEMPTOR, leaving_uids=going)
    want = by_brute_force(node, rest, request)
    assert (added is None) is (want is None)
    if added is not None and want is not None:
        assert fits(node, without(rest, added), request)
        assert not any(fits(node, without(rest, without(added, [each])), request) for each in added)
        if shared <= victims.MAX_SHARED_PODS:
            assert get_victim_order(added) == get_victim_order(want)


@given(clusters())
@settings(max_examples=100, deadline=None)
def test_beyond_the_bounds_no_victim_is_needless(case: tuple[Node, list[Hold], CardRequest, frozenset[str]]) -> None:
    """The method for many pods, tried on a few: enough victims, none needless, and on one card the fewest with the lowest priorities."""
    node, holds, request, going = case
    rest = list_remaining_holds(holds, going)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(victims, "MAX_SETS", 0)
        added = find_added_victims(node, holds, request=request, priority=PREEMPTOR, leaving_uids=going)
        patch.setattr(victims, "MAX_SHARED_PODS", -1)
        spared = find_added_victims(node, holds, request=request, priority=PREEMPTOR, leaving_uids=going)
    want = by_brute_force(node, rest, request)
    assert (added is None) is (spared is None) is (want is None)
    for chosen in (added, spared):
        if chosen is not None:
            assert all(hold.state == "bound" and hold.pod.priority < PREEMPTOR for hold in chosen)
            assert fits(node, without(rest, chosen), request)
            assert not any(fits(node, without(rest, without(chosen, [each])), request) for each in chosen)
    if added is not None and want is not None and not any(len(hold.units) > 1 for hold in rest):
        assert get_victim_order(added)[:2] == get_victim_order(want)[:2]
