"""A node's cards as sorted numbers: enough to say whether a plain request fits, and why not, without looking at a card.

Thousands of nodes are asked about each new size of request. A look at the right place of a sorted tuple answers for one
node what `cards.fit` finds by going through its cards; a property test holds the two to the same answers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cards.fit import Reason
from cards.node import Node
from cards.request import Request


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


def outline_reason(node: Outline, request: Request) -> Reason | None:
    """Why a plain request does not fit, None when it does: the answer of `cards.fit.fitting_cards`."""
    units, count = request.units, request.count
    if _has(node.empty if request.whole else node.room, units, count):
        return None
    if not node.sizes:
        return Reason.NO_MEMORY
    if not _has(node.sizes, units, count):
        return Reason.TOO_FEW_CARDS if node.sizes[-1] >= units else Reason.TOO_LARGE
    if _has(node.shut_empty if request.whole else node.shut_room, units, count):
        return Reason.UNHEALTHY
    if request.whole:
        return Reason.NO_EMPTY_CARD
    return Reason.NO_ROOM if count == 1 else Reason.NOT_ENOUGH_ROOM


def reasons(nodes: Mapping[str, Outline], request: Request) -> Iterator[tuple[str, Reason | None]]:
    """`outline_reason` of many nodes: the loop that somebody waits for when a request is new."""
    units, count, is_whole = request.units, request.count, request.whole
    for name, node in nodes.items():
        room = node.empty if is_whole else node.room
        fits = len(room) >= count and room[-count] >= units
        yield name, None if fits else outline_reason(node, request)


def tightest(node: Outline, request: Request) -> tuple[int, ...]:
    """Free units of the fullest usable cards that take the request, one for each card asked; it must fit."""
    room = node.empty if request.whole else node.room
    first = bisect_left(room, request.units)
    return room[first : first + request.count]


def _has(ascending: tuple[int, ...], units: int, count: int) -> bool:
    """Whether `count` of these are `units` or more: the one that is `count`-th from above tells."""
    return len(ascending) >= count and ascending[-count] >= units
