"""Which cards of a node a request may take, or why none: one answer for filter, bind, explain and policies.

The reasons are fixed texts. The scheduler groups equal ones in the pod's event, so they carry no names and
no numbers. `NEVER` means that even an empty node would not do; everything else may change.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from vrampack.cards.node import Card, Node
from vrampack.cards.request import CardRequest


class UnfitReason(Enum):
    """Why a node is refused, in the order in which they are looked at: the first that applies is said."""

    NO_MEMORY = "no shareable GPU memory"
    TOO_LARGE = "larger than any card"
    TOO_FEW_CARDS = "too few cards"
    MODEL = "card model not allowed"
    UUID = "card uuid not here"
    NOT_VALID = "request not valid"
    NO_ROOM = "no card with enough free memory"
    NOT_ENOUGH_ROOM = "not enough cards with free memory"
    NO_EMPTY_CARD = "no empty card"
    UNHEALTHY = "card unhealthy or cordoned"
    KEPT_FREE = "kept free by policy"
    NOT_SEEN = "node not seen yet"

    # Members are the same objects everywhere. Enum's own hash is a Python function, and these are looked up by the thousand.
    __hash__ = object.__hash__

    @property
    def is_unresolvable(self) -> bool:
        return self in UNRESOLVABLE


UNRESOLVABLE = frozenset(
    {
        UnfitReason.NO_MEMORY,
        UnfitReason.TOO_LARGE,
        UnfitReason.TOO_FEW_CARDS,
        UnfitReason.MODEL,
        UnfitReason.UUID,
        UnfitReason.NOT_VALID,
    }
)


@dataclass(frozen=True, slots=True)
class Unfit:
    """A no, with its reason."""

    reason: UnfitReason


def find_fitting_cards(node: Node, request: CardRequest) -> tuple[Card, ...] | Unfit:
    """The cards the request may take now, at least `request.count` of them, in index order, or why not."""
    possible = _possible_cards(node, request)
    if isinstance(possible, Unfit):
        return possible
    roomy = [card for card in possible if _has_capacity(card, request)]
    usable = tuple(card for card in roomy if card.is_usable)
    if len(usable) >= request.count:
        return usable
    if len(roomy) >= request.count:
        return Unfit(UnfitReason.UNHEALTHY)
    return Unfit(_no_capacity_reason(request))


def find_card_obstacle(card: Card, request: CardRequest) -> UnfitReason | None:
    """Why the request may not take this one card now, or None: what `fitting_cards` says of a node, card by card.

    A node fits when at least `request.count` of its cards have no reason. Otherwise it says the first one at which
    fewer than so many are left (`too few cards` where they are too small, `larger than any card` where all are), in
    the words of the request: a card says `no card with enough free memory` for `not enough cards` as well.
    """
    if not _has_memory(card):
        return UnfitReason.NO_MEMORY
    if not _is_large_enough(card, request):
        return UnfitReason.TOO_LARGE
    if request.models and not _is_of_model(card, request):
        return UnfitReason.MODEL
    if request.uuids and not _is_requested_card(card, request):
        return UnfitReason.UUID
    if request.problem:
        return UnfitReason.NOT_VALID
    if not _has_capacity(card, request):
        return UnfitReason.NO_EMPTY_CARD if request.whole else UnfitReason.NO_ROOM
    return None if card.is_usable else UnfitReason.UNHEALTHY


def count_missing_units(card: Card, request: CardRequest) -> int:
    """Units that must be freed on the card before the request has room there; 0 when it has.

    On a card that is too small no freeing helps: see `card_reason`.
    """
    if request.whole:
        return card.used_units
    return max(0, card.used_units + request.units - card.units)


def _possible_cards(node: Node, request: CardRequest) -> list[Card] | Unfit:
    """The cards that would do if they were empty and healthy; the first of the `never` reasons otherwise."""
    if node.problem or not any(map(_has_memory, node.cards)):
        return Unfit(UnfitReason.NO_MEMORY)
    cards = [card for card in node.cards if _is_large_enough(card, request)]
    if not cards:
        return Unfit(UnfitReason.TOO_LARGE)
    if len(cards) < request.count:
        return Unfit(UnfitReason.TOO_FEW_CARDS)
    if request.models:
        cards = [card for card in cards if _is_of_model(card, request)]
        if len(cards) < request.count:
            return Unfit(UnfitReason.MODEL)
    if request.uuids:
        cards = [card for card in cards if _is_requested_card(card, request)]
        if len(cards) < request.count:
            return Unfit(UnfitReason.UUID)
    if request.problem:
        return Unfit(UnfitReason.NOT_VALID)
    return cards


def _has_memory(card: Card) -> bool:
    return card.units > 0


def _is_large_enough(card: Card, request: CardRequest) -> bool:
    """Whether it could hold the request if it were empty. A request of no units needs a card of some all the same."""
    return card.units >= (request.units or 1)


def _is_of_model(card: Card, request: CardRequest) -> bool:
    return card.model in request.models


def _is_requested_card(card: Card, request: CardRequest) -> bool:
    return card.uuid in request.uuids


def _has_capacity(card: Card, request: CardRequest) -> bool:
    if request.whole:
        return card.used_units == 0
    return card.free_units >= request.units


def _no_capacity_reason(request: CardRequest) -> UnfitReason:
    if request.whole:
        return UnfitReason.NO_EMPTY_CARD
    return UnfitReason.NO_ROOM if request.count == 1 else UnfitReason.NOT_ENOUGH_ROOM
