"""A node's cards as sorted numbers: enough to say whether a plain request fits, and why not, without looking at a card.

Thousands of nodes are asked about each new size of request. A look at the right place of a sorted tuple answers for one
node what `vrampack.cards.fit` finds by going through its cards; a property test holds the two to the same answers.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple

from vrampack.cards.fit import Reason
from vrampack.cards.node import Node
from vrampack.cards.request import Request


@dataclass(frozen=True, slots=True)
class Outline:
    """What of a node matters to a request that wishes for no certain cards. Made by `outline`."""

    sizes: tuple[int, ...]
    """Units of every card that has any, ascending; empty where nothing may be placed."""
    room: tuple[int, ...]
    """Free units of usable cards, ascending."""
    empty: tuple[int, ...]
    """Units of usable cards that nobody holds, ascending."""
    shut_room: tuple[int, ...]
    """As `room`, of all cards: what would be there if every card were usable."""
    shut_empty: tuple[int, ...]
    used_units: int
    total_units: int
    usable: tuple[tuple[int, int], ...]
    """Units and used units of every usable card, by index."""


def outline(node: Node) -> Outline:
    cards = () if node.problem else tuple(card for card in node.cards if card.units)
    usable = tuple(card for card in cards if card.is_usable)
    return Outline(
        sizes=tuple(sorted(card.units for card in cards)),
        room=tuple(sorted(card.free_units for card in usable)),
        empty=tuple(sorted(card.units for card in usable if not card.used_units)),
        shut_room=tuple(sorted(card.free_units for card in cards)),
        shut_empty=tuple(sorted(card.units for card in cards if not card.used_units)),
        used_units=node.used_units,
        total_units=node.total_units,
        usable=tuple((card.units, card.used_units) for card in usable),
    )


def is_plain(request: Request) -> bool:
    """Whether an outline can answer: a valid request that names neither models nor cards."""
    return not (request.models or request.uuids or request.problem) and request.units > 0


class Gist(NamedTuple):
    """The four numbers by which plain requests of one count of cards, whole or not, fit or do not; -1 where there are too few cards.

    Thousands of nodes have a few dozen gists between them, so a new size of request is answered gist by gist.
    """

    room: int
    """Units that so many usable cards have free, each."""
    shut_room: int
    """The same if every card were usable."""
    size: int
    """Units that so many cards have, each."""
    largest: int
    """Units of the largest card."""

    def reason(self, request: Request) -> Reason | None:
        """Why a plain request does not fit, None when it does: the answer of `vrampack.cards.fit.fitting_cards`."""
        units = request.units
        if self.room >= units:
            return None
        if self.largest < 0:
            return Reason.NO_MEMORY
        if self.size < units:
            return Reason.TOO_FEW_CARDS if self.largest >= units else Reason.TOO_LARGE
        if self.shut_room >= units:
            return Reason.UNHEALTHY
        if request.whole:
            return Reason.NO_EMPTY_CARD
        return Reason.NO_ROOM if request.count == 1 else Reason.NOT_ENOUGH_ROOM


def gist(node: Outline, count: int, *, whole: bool) -> Gist:
    """What matters of the node to plain requests of `count` cards, `whole` or not."""
    room, shut_room = (node.empty, node.shut_empty) if whole else (node.room, node.shut_room)
    return Gist(_nth(room, count), _nth(shut_room, count), _nth(node.sizes, count), _nth(node.sizes, 1))


def tightest(node: Outline, request: Request) -> tuple[int, ...]:
    """Free units of the fullest usable cards that take the request, one for each card asked; it must fit."""
    room = node.empty if request.whole else node.room
    first = bisect_left(room, request.units)
    return room[first : first + request.count]


def _nth(ascending: tuple[int, ...], count: int) -> int:
    """The one that is `count`-th from above: so many are as large or larger."""
    return ascending[-count] if len(ascending) >= count else -1
