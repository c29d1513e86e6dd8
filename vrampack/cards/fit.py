"""Which cards of a node a request may take, or why it may take none: one answer for filter, bind, explain and policies.

Both verdicts here, a node's and a card's, walk the table of `vrampack.cards.reasons` from its first row to its last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vrampack.cards.node import Card, Node
from vrampack.cards.payment import choose_paid_cards, drop_unpaid_cards, is_paid, narrow_to_one_card
from vrampack.cards.reasons import UnfitReason, find_occasion, get_checks, get_request_form, is_plain_request
from vrampack.cards.request import CardRequest


@dataclass(frozen=True, slots=True)
class Unfit:
    """A refusal, with its reason."""

    reason: UnfitReason


def find_fitting_cards(node: Node, request: CardRequest) -> tuple[Card, ...] | Unfit:
    """The cards the request may take now, any `request.count` of them, in index order, or why not."""
    cards = _check_cards(node, node.placeable_cards, request, request.count)
    if isinstance(cards, UnfitReason):
        return Unfit(cards)
    payment = request.payment
    return tuple(cards) if payment is None else tuple(choose_paid_cards(cards, payment, request.count))


def find_card_obstacle(node: Node, card: Card, request: CardRequest) -> UnfitReason | None:
    """Why the request may not take this one card of the node now, as if it asked for one card; None if it may.

    A node fits when at least `request.count` of its cards have no reason. Otherwise its reason is the first at which
    fewer are left, worded for the request: a card says `no card with enough free memory` where its node says
    `not enough cards with free memory`, and never `too few cards`.
    """
    cards = _check_cards(node, (card,), narrow_to_one_card(request), 1)
    return cards if isinstance(cards, UnfitReason) else None


def list_unhindered_cards(node: Node, cards: Sequence[Card], request: CardRequest) -> Sequence[Card]:
    """Those of `cards`, which are the node's but filled differently, that the request may take, however few."""
    request = narrow_to_one_card(request)
    passed = _check_cards(node, cards, request, 1)
    if isinstance(passed, UnfitReason):
        return ()
    return passed if request.payment is None else drop_unpaid_cards(passed, request.payment, 1)


def count_missing_units(card: Card, request: CardRequest) -> int:
    """Units that must be freed on the card before the request has room there; 0 when it has.

    Freeing units does not help on a card that is too small: see `find_card_obstacle`.
    """
    if request.whole:
        return card.used_units
    return max(0, card.used_units + request.units - card.units)


def _check_cards(node: Node, cards: Sequence[Card], request: CardRequest, count: int) -> Sequence[Card] | UnfitReason:
    """The cards that pass every check, or the first reason at which fewer than `count` are left."""
    checks = get_checks(
        get_request_form(request, count),
        find_occasion(request, node.terms),
        is_plain=is_plain_request(request),
        is_ruled=request.rules is not None,
        counts_instances=node.counts_instances,
        asks_amounts=bool(request.amounts),
    )
    payment = request.payment
    for reason, check in checks:
        cards = check.select_cards(cards, request)
        if len(cards) < (1 if check.needs_one_card else count):
            return reason
        if payment is not None and check.must_be_paid and not is_paid(cards, payment, count):
            return reason
    return cards
