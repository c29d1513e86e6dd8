"""What keeps a request off each card, and how much is missing on it: by a table, and as the reason of the whole node."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, example, given, settings

from tests.support.builders import snapshot_node
from tests.support.strategies import node_strategy, request_strategy
from vrampack.cards.fit import Unfit, count_missing_units, find_card_obstacle, find_fitting_cards
from vrampack.cards.node import Card, Node
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import CardRequest, RequestRules

CARD_REASONS = {
    "fits": (Card(0, 16, 16384), CardRequest(16), None, 0),
    "no units": (Card(0, 0, 512), CardRequest(1), UnfitReason.NO_MEMORY, 1),
    "smaller than requested": (Card(0, 8, 8192), CardRequest(9), UnfitReason.TOO_LARGE, 1),
    "another model": (Card(0, 8, 8192, model="A"), CardRequest(4, models=frozenset({"B"})), UnfitReason.MODEL, 0),
    "another uuid": (Card(0, 8, 8192, "GPU-0"), CardRequest(4, uuids=frozenset({"GPU-1"})), UnfitReason.UUID, 0),
    "a wrong request": (Card(0, 8, 8192), CardRequest(4, is_valid=False), UnfitReason.NOT_VALID, 0),
    # 3 used + 6 asked - 8 = 1
    "one unit short": (Card(0, 8, 8192, used_units=3), CardRequest(6), UnfitReason.NO_ROOM, 1),
    # 10 used + 6 asked - 8 = 8: what is held too much must go as well
    "over-committed": (Card(0, 8, 8192, used_units=10), CardRequest(6), UnfitReason.NO_ROOM, 8),
    # the card's share of a pod on two cards has the same words as a pod on one
    "one of two cards short": (Card(0, 8, 8192, used_units=3), CardRequest(6, count=2), UnfitReason.NO_ROOM, 1),
    "not empty": (Card(0, 8, 8192, used_units=3), CardRequest(4, whole=True), UnfitReason.NO_EMPTY_CARD, 3),
    "sick": (Card(0, 8, 8192, healthy=False), CardRequest(4), UnfitReason.UNHEALTHY, 0),
    "cordoned": (Card(0, 8, 8192, cordoned=True), CardRequest(4), UnfitReason.UNHEALTHY, 0),
    "of a model that a rule forbids": (
        Card(0, 8, 8192, model="A"),
        CardRequest(4, rules=RequestRules(models=frozenset({"B"}))),
        UnfitReason.NOT_PERMITTED,
        0,
    ),
    "reserved for others": (
        Card(0, 8, 8192, reserve=0),
        CardRequest(4, rules=RequestRules(reserves=frozenset({1}))),
        UnfitReason.RESERVED,
        0,
    ),
    "another tenant's": (
        Card(0, 8, 8192, used_units=3, tenants=frozenset({b"b"})),
        CardRequest(4, rules=RequestRules(tenant=b"a")),
        UnfitReason.NOT_SHAREABLE,
        0,
    ),
    "two tenants', from before the rule": (
        Card(0, 8, 8192, used_units=3, tenants=frozenset({b"a", b"b"})),
        CardRequest(4, rules=RequestRules(tenant=b"a")),
        UnfitReason.NOT_SHAREABLE,
        0,
    ),
    "two pods that share with no other": (
        Card(0, 8, 8192, used_units=3, tenants=frozenset({b""})),
        CardRequest(4, rules=RequestRules(tenant=b"")),
        UnfitReason.NOT_SHAREABLE,
        0,
    ),
    "as many pods as a rule allows": (
        Card(0, 8, 8192, used_units=3, free_pods=0),
        CardRequest(4, rules=RequestRules()),
        UnfitReason.POD_LIMIT,
        0,
    ),
    "all of its compute taken": (
        Card(0, 8, 8192, used_units=3, offered=(("compute", 100),), taken=(("compute", 90),)),
        CardRequest(4, amounts=(("compute", 11),)),
        UnfitReason.NO_AMOUNT,
        0,
    ),
    "no such axis": (
        Card(0, 8, 8192, offered=(("compute", 100),)),
        CardRequest(4, amounts=(("compute", 10), ("links", 1))),
        UnfitReason.NOT_OFFERED,
        0,
    ),
    "full and sick": (Card(0, 8, 8192, used_units=8, healthy=False), CardRequest(4), UnfitReason.NO_ROOM, 4),
}


@pytest.mark.parametrize(("card", "request_", "want", "missing"), CARD_REASONS.values(), ids=CARD_REASONS)
def test_every_card_has_its_own_reason_and_what_is_missing(
    card: Card, request_: CardRequest, want: UnfitReason | None, missing: int
) -> None:
    assert (find_card_obstacle(snapshot_node(), card, request_), count_missing_units(card, request_)) == (want, missing)


def reason_of_node(reasons: list[UnfitReason | None], request: CardRequest) -> UnfitReason | None:
    """The node's reason as a function of its cards', as `find_card_obstacle` states it."""
    if all(reason is UnfitReason.NO_MEMORY for reason in reasons):
        return UnfitReason.NO_MEMORY
    if UnfitReason.UNKNOWN_INJECTION in reasons:
        return UnfitReason.UNKNOWN_INJECTION
    if UnfitReason.AGENT_TOO_OLD in reasons:
        return UnfitReason.AGENT_TOO_OLD
    if all(reason in (UnfitReason.NO_MEMORY, UnfitReason.TOO_LARGE) for reason in reasons):
        return UnfitReason.TOO_LARGE
    stops = [UnfitReason.NO_MEMORY, UnfitReason.TOO_LARGE, UnfitReason.MODEL, UnfitReason.UUID, UnfitReason.NOT_VALID]
    stops += [UnfitReason.NOT_PERMITTED, UnfitReason.RESERVED, UnfitReason.NOT_OFFERED]
    stops += [UnfitReason.NO_REFERENCES, UnfitReason.UNPAID]
    stops += [UnfitReason.NO_ROOM, UnfitReason.NO_EMPTY_CARD, UnfitReason.NO_AMOUNT]
    stops += [UnfitReason.NOT_SHAREABLE, UnfitReason.POD_LIMIT, UnfitReason.INSTANCE_LIMIT, UnfitReason.UNHEALTHY]
    for at, stop in enumerate(stops):
        if sum(reason not in stops[: at + 1] for reason in reasons) < request.count:
            return _for_nodes(stop, request)
    return None


def _for_nodes(stop: UnfitReason, request: CardRequest) -> UnfitReason:
    """Cards give the check they fail; a node may have to report that too few are left."""
    if stop is UnfitReason.TOO_LARGE or stop is UnfitReason.NO_MEMORY:
        return UnfitReason.TOO_FEW_CARDS
    return UnfitReason.NOT_ENOUGH_ROOM if stop is UnfitReason.NO_ROOM and request.count > 1 else stop


@settings(max_examples=150, deadline=None)
@given(node_strategy(), request_strategy())
@example(snapshot_node(units=()), CardRequest(1))
@example(snapshot_node(units=(0, 16)), CardRequest(1, count=2))
def test_a_nodes_reason_follows_from_those_of_its_cards(node: Node, request_: CardRequest) -> None:
    if node.problem:
        return
    assume(request_.payment is None or request_.count == 1)  # of several, which go together decides: test_payment.py
    reasons = [find_card_obstacle(node, card, request_) for card in node.cards]
    fitting = find_fitting_cards(node, request_)
    assert (fitting.reason if isinstance(fitting, Unfit) else None) == reason_of_node(reasons, request_)
    if isinstance(fitting, tuple):
        assert list(fitting) == [card for card, reason in zip(node.cards, reasons, strict=True) if reason is None]


ROOMY = (
    None,
    UnfitReason.NO_AMOUNT,
    UnfitReason.NOT_SHAREABLE,
    UnfitReason.POD_LIMIT,
    UnfitReason.INSTANCE_LIMIT,
    UnfitReason.UNHEALTHY,
)
"""What a card with enough free memory may say."""


@settings(deadline=None)
@given(node_strategy(), request_strategy())
def test_nothing_is_missing_where_there_is_room(node: Node, request_: CardRequest) -> None:
    for card in node.cards:
        reason = find_card_obstacle(node, card, request_)
        if reason in ROOMY:
            assert count_missing_units(card, request_) == 0
        if reason in (UnfitReason.NO_ROOM, UnfitReason.NO_EMPTY_CARD):
            less = replace(card, used_units=card.used_units - count_missing_units(card, request_))
            assert count_missing_units(card, request_) > 0
            assert find_card_obstacle(node, less, request_) in ROOMY
