"""Whole cards are paid for: which cards so many units pay for, and which pods speak against it in an old cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders import ledger_pod, pod_request, snapshot_node
from vrampack.cards.fit import Unfit, find_card_obstacle, find_fitting_cards
from vrampack.cards.node import Node, Share
from vrampack.cards.payment import describe_unpaid, find_unpaid_use
from vrampack.cards.pod import Pod
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.records import Record
from vrampack.cards.request import REQUEST_WORDS, CardRequest
from vrampack.cards.rules import PlacementRules

PAID = PlacementRules(whole_cards_are_paid=True)
UNPAID, TOO_LARGE, TOO_FEW, NO_EMPTY = (
    "whole card asks for too little",
    "larger than any card",
    "too few cards",
    "no empty card",
)
EIGHT = (80,) * 7 + (79,)


def ask_for_whole_cards(units: int, count: int) -> CardRequest:
    return PAID.constrain_request(Pod("", "ml", "p"), pod_request(units, count=count, whole=True)).card_request


def put_on_cards(units: Sequence[int], used: Sequence[int] = ()) -> Node:
    return snapshot_node(units=units, used=used or [0] * len(units), serves=REQUEST_WORDS)


# the cards, units asked, number of cards -> how many cards may be taken, or the reason
CASES: dict[str, tuple[Node, int, int, int | str]] = {
    "all units": (put_on_cards((80,)), 80, 1, 1),
    "a unit for a card of 80": (put_on_cards((80,)), 1, 1, UNPAID),
    "one too few": (put_on_cards((80,)), 79, 1, UNPAID),
    # 15/16 of 80 are 75
    "a card that is a little smaller": (put_on_cards((75,)), 80, 1, 1),
    "a card that is too small": (put_on_cards((74,)), 80, 1, TOO_LARGE),
    "a T4 never takes 80": (put_on_cards((15, 80)), 80, 1, 1),
    "between two sizes": (put_on_cards((15, 80)), 40, 1, UNPAID),
    "eight, of which one has less": (put_on_cards(EIGHT), 640, 8, 8),
    "the card that it pays for, not a smaller one": (put_on_cards((79, 80)), 80, 1, 1),
    "eight, counted exactly": (put_on_cards(EIGHT), 639, 8, 8),
    "eight, a unit too few": (put_on_cards(EIGHT), 638, 8, UNPAID),
    # seven of 80 have 560; with the smaller one, 559
    "seven of eight": (put_on_cards(EIGHT), 560, 7, 7),
    "seven of eight, a unit less": (put_on_cards(EIGHT), 559, 7, 7),
    "the small card is in use": (put_on_cards(EIGHT, (0,) * 7 + (1,)), 559, 7, NO_EMPTY),
    "too few of the size": (put_on_cards((80, 80, 15)), 240, 3, TOO_FEW),
}


@pytest.mark.parametrize(("node", "units", "count", "want"), CASES.values(), ids=CASES)
def test_cards_are_taken_only_if_their_units_are_asked_for(node: Node, units: int, count: int, want: int | str) -> None:
    found = find_fitting_cards(node, ask_for_whole_cards(units, count))
    assert (found.reason.value if isinstance(found, Unfit) else len(found)) == want


@given(
    st.lists(st.sampled_from((4, 15, 16, 31, 32)), min_size=1, max_size=6),
    st.integers(1, 100),
    st.integers(1, 4),
    st.data(),
)
def test_any_choice_of_the_fitting_cards_is_paid_for(
    units: list[int], asked: int, count: int, data: st.DataObject
) -> None:
    used = data.draw(st.lists(st.sampled_from((0, 0, 1)), min_size=len(units), max_size=len(units)))
    node, request = put_on_cards(units, used), ask_for_whole_cards(asked, count)
    empty = [card for card in node.cards if not card.used_units and 16 * count * card.units >= 15 * asked]
    possible = [chosen for chosen in combinations(empty, count) if sum(card.units for card in chosen) <= asked]
    found = find_fitting_cards(node, request)
    if isinstance(found, Unfit):
        assert not possible
        return
    assert all(chosen in possible for chosen in combinations(found, count))
    assert len(found) >= count
    # the rest is for those that pay for less
    assert min(card.units for card in found) == min(
        card.units for card in max(possible, key=lambda chosen: sorted((card.units for card in chosen), reverse=True))
    )
    single = [card for card in node.cards if find_card_obstacle(node, card, request) is None]
    assert set(found) <= set(single)


def test_the_text_lists_what_to_ask_for() -> None:
    cards = [("Tesla T4", 15), ("A100", 80), ("A100", 79), ("", 24), ("H100", 0)]
    pair = replace(pod_request(4, count=2, whole=True))
    assert describe_unpaid(cards, pair) == (
        "it asks for 4 units for 2 whole cards; ask for all of their units, each: unknown model 24, A100 79 or 80, Tesla T4 15"
    )
    wish = pod_request(4, whole=True, annotations={"vrampack.dev/card-model": "Tesla T4"})
    assert describe_unpaid(cards, wish) == (
        "it asks for 4 units for a whole card; ask for all of their units: Tesla T4 15"
    )


def running(name: str, record: Record | None, *, units: int = 15, finished: bool = False) -> Pod:
    ask = pod_request(units, whole=True)
    return ledger_pod(name, ask=ask, node="n", record=record, finished=finished)


WHOLE = Record("vrampack", (Share(15, "GPU-0", 0, whole=True),))
USES: dict[str, tuple[list[Pod], str]] = {
    "nothing": ([], ""),
    "a whole card that is paid for": ([running("a", WHOLE)], ""),
    "a part of a card": ([ledger_pod("a", node="n", record=Record("vrampack", (Share(4, "GPU-0", 0),)))], ""),
    "a waiting pod that asks for too little": ([ledger_pod("a", ask=pod_request(1, whole=True))], ""),
    "a finished one": ([running("a", WHOLE, units=4, finished=True)], ""),
    "a pod without a record": ([running("a", None, units=4)], ""),
    "more than it asks for": ([running("a", WHOLE, units=4)], "pod default/a holds 15 units and asks for 4"),
    "of gpushare, or ACK": (
        [running("b", Record("gpushare-v3", (Share(4, None, 0),))), running("c", WHOLE, units=4)],
        "pod default/b has a record of gpushare-v3",
    ),
}


@pytest.mark.parametrize(("pods", "want"), USES.values(), ids=USES)
def test_what_runs_says_whether_whole_cards_can_be_paid_for(pods: list[Pod], want: str) -> None:
    assert find_unpaid_use(pods) == want


def test_only_whole_cards_are_paid_for() -> None:
    """A request that is not whole, or not valid, stays equal to that of a cluster without the rule: they share every answer."""
    pod = Pod("", "ml", "p")
    for ask in (
        pod_request(4),
        pod_request(4, count=2),
        pod_request(4, whole=True, labels={"aliyun.com/gpu-count": "0"}),
    ):
        assert PAID.constrain_request(pod, ask) is ask
    paying = PAID.constrain_request(pod, pod_request(4, whole=True))
    assert PlacementRules().constrain_request(pod, paying) == pod_request(4, whole=True)


def test_units_need_not_divide_where_the_agent_knows_it() -> None:
    request = ask_for_whole_cards(639, 8)
    assert request.words - {"memory"} == {"several-cards", "whole-cards", "uneven-cards"}
    old = find_fitting_cards(snapshot_node(units=EIGHT), request)
    assert isinstance(old, Unfit)
    assert old.reason is UnfitReason.AGENT_TOO_OLD
