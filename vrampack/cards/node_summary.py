"""A node's cards as sorted numbers: enough to say whether a plain request fits, and why not, without looking at a card.

Thousands of nodes are asked about each new size of request. A look at the right place of a sorted tuple answers for one
node what `vrampack.cards.fit` finds by going through its cards; a property test holds the two to the same answers.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple

from vrampack.cards.fit import UnfitReason
from vrampack.cards.node import Node
from vrampack.cards.request import CardRequest


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """What of a node matters to a request that wishes for no certain cards. Made by `outline`."""

    card_units: tuple[int, ...]
    """Units of every card that has any, ascending; empty where nothing may be placed."""
    free_units: tuple[int, ...]
    """Free units of usable cards, ascending."""
    empty_card_units: tuple[int, ...]
    """Units of usable cards that nobody holds, ascending."""
    free_units_if_usable: tuple[int, ...]
    """As `room`, of all cards: what would be there if every card were usable."""
    empty_card_units_if_usable: tuple[int, ...]
    used_units: int
    total_units: int
    usable_cards: tuple[tuple[int, int], ...]
    """Units and used units of every usable card, by index."""


def summarize_node(node: Node) -> NodeSummary:
    cards = () if node.problem else tuple(card for card in node.cards if card.units)
    usable = tuple(card for card in cards if card.is_usable)
    return NodeSummary(
        card_units=tuple(sorted(card.units for card in cards)),
        free_units=tuple(sorted(card.free_units for card in usable)),
        empty_card_units=tuple(sorted(card.units for card in usable if not card.used_units)),
        free_units_if_usable=tuple(sorted(card.free_units for card in cards)),
        empty_card_units_if_usable=tuple(sorted(card.units for card in cards if not card.used_units)),
        used_units=node.used_units,
        total_units=node.total_units,
        usable_cards=tuple((card.units, card.used_units) for card in usable),
    )


def is_plain_request(request: CardRequest) -> bool:
    """Whether an outline can answer: a valid request that names neither models nor cards."""
    return not (request.models or request.uuids or request.problem) and request.units > 0


class EquivalenceClass(NamedTuple):
    """The four numbers by which plain requests of one count of cards, whole or not, fit or do not; -1 where there are too few cards.

    Thousands of nodes have a few dozen gists between them, so a new size of request is answered gist by gist.
    """

    free_units: int
    """Units that so many usable cards have free, each."""
    free_units_if_usable: int
    """The same if every card were usable."""
    card_units: int
    """Units that so many cards have, each."""
    largest_card_units: int
    """Units of the largest card."""

    def find_obstacle(self, request: CardRequest) -> UnfitReason | None:
        """Why a plain request does not fit, None when it does: the answer of `vrampack.cards.fit.fitting_cards`."""
        units = request.units
        if self.free_units >= units:
            return None
        if self.largest_card_units < 0:
            return UnfitReason.NO_MEMORY
        if self.card_units < units:
            return UnfitReason.TOO_FEW_CARDS if self.largest_card_units >= units else UnfitReason.TOO_LARGE
        if self.free_units_if_usable >= units:
            return UnfitReason.UNHEALTHY
        if request.whole:
            return UnfitReason.NO_EMPTY_CARD
        return UnfitReason.NO_ROOM if request.count == 1 else UnfitReason.NOT_ENOUGH_ROOM


def find_equivalence_class(summary: NodeSummary, count: int, *, whole: bool) -> EquivalenceClass:
    """What matters of the node to plain requests of `count` cards, `whole` or not."""
    room, shut_room = (
        (summary.empty_card_units, summary.empty_card_units_if_usable)
        if whole
        else (summary.free_units, summary.free_units_if_usable)
    )
    return EquivalenceClass(
        _nth(room, count), _nth(shut_room, count), _nth(summary.card_units, count), _nth(summary.card_units, 1)
    )


def find_tightest_units(summary: NodeSummary, request: CardRequest) -> tuple[int, ...]:
    """Free units of the fullest usable cards that take the request, one for each card asked; it must fit."""
    room = summary.empty_card_units if request.whole else summary.free_units
    first = bisect_left(room, request.units)
    return room[first : first + request.count]


def _nth(ascending: tuple[int, ...], count: int) -> int:
    """The one that is `count`-th from above: so many are as large or larger."""
    return ascending[-count] if len(ascending) >= count else -1
