"""A node's cards as sorted numbers: enough to decide whether a plain request fits, and why not, without its cards.

Each new size of request needs a verdict on thousands of nodes. For one node a look at the right place of a sorted tuple
gives the verdict that `vrampack.cards.fit` reaches card by card; a property test holds the two to the same answers.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from sys import maxsize
from typing import NamedTuple

from vrampack.cards.node import Node
from vrampack.cards.reasons import RequestForm, UnfitReason, list_checks
from vrampack.cards.request import CardRequest


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """What of a node matters to a plain request. Made by `summarize_node`."""

    card_units: tuple[int, ...]
    """Units of every card that has any, ascending; empty where nothing may be placed."""
    free_units: tuple[int, ...]
    """Free units of usable cards, ascending."""
    empty_card_units: tuple[int, ...]
    """Units of usable cards that no pod holds, ascending."""
    free_units_if_usable: tuple[int, ...]
    """As `free_units`, of all cards: what would be free if every card were usable."""
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
    """Whether a summary can answer: a valid request that names neither models nor cards."""
    return not (request.models or request.uuids or request.problem) and request.units > 0


class EquivalenceClass(NamedTuple):
    """The numbers by which plain requests of one count of cards, whole or not, fit or do not.

    Each is the most units that such a request may ask for and pass one check of `vrampack.cards.reasons`, -1 where none
    does. They ascend, from the last check to the first: a request that passes one passes those above it.
    Thousands of nodes have a few dozen classes between them, so a new size of request is answered class by class.
    """

    free_units: int
    """Units that so many usable cards have free, each."""
    free_units_if_usable: int
    """The same if every card were usable."""
    card_units: int
    """Units that so many cards have, each."""
    largest_card_units: int
    """Units of the largest card."""
    any_units: int
    """No limit where some card has memory."""

    def find_obstacle(self, request: CardRequest) -> UnfitReason | None:
        """Why a plain request does not fit, None when it does: the answer of `vrampack.cards.fit.find_fitting_cards`."""
        units = request.units
        if self.free_units >= units:
            return None
        obstacles = _WHOLE_CARDS if request.whole else _ONE_CARD if request.count == 1 else _SEVERAL_CARDS
        # The place of `units` among the numbers. `bisect_left(self, units) - 1` is the same and takes twice as long.
        _, second, third, fourth, last = self
        return obstacles[
            0 if second >= units else 1 if third >= units else 2 if fourth >= units else 3 if last >= units else 4
        ]


def _list_obstacles(form: RequestForm) -> tuple[UnfitReason, ...]:
    """The reasons in the order of the numbers of a class: each is the verdict where its number is the last that is too small."""
    reasons: dict[str | None, UnfitReason] = {check.class_number: reason for reason, check in list_checks(form)}
    return tuple(reasons[number] for number in EquivalenceClass._fields)


# Three constants, not a mapping: with a call and a look-up of the form a verdict would take half as long again.
_ONE_CARD = _list_obstacles("one card")
_SEVERAL_CARDS = _list_obstacles("several cards")
_WHOLE_CARDS = _list_obstacles("whole cards")


def find_equivalence_class(summary: NodeSummary, count: int, *, whole: bool) -> EquivalenceClass:
    """What matters of the node to plain requests of `count` cards, `whole` or not."""
    free, free_if_usable = (
        (summary.empty_card_units, summary.empty_card_units_if_usable)
        if whole
        else (summary.free_units, summary.free_units_if_usable)
    )
    cards = summary.card_units
    return EquivalenceClass(
        _nth(free, count), _nth(free_if_usable, count), _nth(cards, count), _nth(cards, 1), maxsize if cards else -1
    )


def find_tightest_units(summary: NodeSummary, request: CardRequest) -> tuple[int, ...]:
    """Free units of the fullest usable cards that take the request, one for each card asked for; it must fit."""
    free = summary.empty_card_units if request.whole else summary.free_units
    first = bisect_left(free, request.units)
    return free[first : first + request.count]


def _nth(ascending: tuple[int, ...], count: int) -> int:
    """The `count`-th largest, so that `count` of them are as large or larger; -1 where there are fewer."""
    return ascending[-count] if len(ascending) >= count else -1
