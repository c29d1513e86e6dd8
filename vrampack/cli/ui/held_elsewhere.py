"""What pods hold that the reader may not list: numbers only, without names.

A node says what its cards have, and the pods that the reader may list say what they hold. The rest is free or held by
others. If the extender's metrics are given, they say how much of a node is held in all; then only the card is unknown:

    units of the node that others hold = held in all - held by listed pods
    at most on a card  = what listed pods leave of it
    at least on a card = what the node's other cards cannot take

Without the metrics, others may hold anything from nothing to all that listed pods leave.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vrampack.cards.node import Card, Node


@dataclass(frozen=True, slots=True)
class UnitRange:
    """Units that others hold, at least and at most."""

    least: int = 0
    most: int = 0

    @property
    def is_exact(self) -> bool:
        return self.least == self.most


NOTHING = UnitRange()


@dataclass(frozen=True, slots=True)
class HeldElsewhere:
    """What others hold on one node, and on its cards by index."""

    on_node: UnitRange = NOTHING
    on_cards: Mapping[int, UnitRange] | None = None
    """None: nothing on any card."""

    def get_card_range(self, index: int) -> UnitRange:
        return NOTHING if self.on_cards is None else self.on_cards.get(index, NOTHING)


def compute_held_elsewhere(node: Node, *, is_complete: bool, held_units: int | None = None) -> HeldElsewhere:
    """For a node counted with listed pods only. `held_units`: what all pods hold there; None if unknown."""
    if is_complete:
        return HeldElsewhere()
    left = {card.index: card.free_units for card in node.cards}
    together = sum(left.values())
    if held_units is None:
        return HeldElsewhere(UnitRange(0, together), {index: UnitRange(0, units) for index, units in left.items()})
    others = max(0, held_units - node.used_units)
    ranges = {
        index: UnitRange(max(0, min(units, others - (together - units))), min(units, others))
        for index, units in left.items()
    }
    return HeldElsewhere(UnitRange(others, others), ranges)


def compute_free_range(card: Card, elsewhere: UnitRange) -> UnitRange:
    """The units that are free on the card if others hold this range."""
    return UnitRange(max(0, card.free_units - elsewhere.most), max(0, card.free_units - elsewhere.least))
