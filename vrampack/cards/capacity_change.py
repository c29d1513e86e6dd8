"""Whether a node has room that it had not before: what may turn a pod's no into a yes."""

from __future__ import annotations

from vrampack.cards.node import Card, Node


def has_gained_capacity(before: Node | None, after: Node) -> bool:
    """Whether some request that did not fit on `before` may fit on `after`; never false when one does.

    A card counts by its name and make: one that was changed for another is new, and new cards are gained room.
    """
    if after.problem:
        return False
    if before is None or before.problem:
        return any(_usable_free_units(card) for card in after.cards)
    known = {_identity(card): _usable_free_units(card) for card in before.cards}
    return any(_usable_free_units(card) > known.get(_identity(card), 0) for card in after.cards)


def _identity(card: Card) -> tuple[int, str | None, str, int]:
    return card.index, card.uuid, card.model, card.units


def _usable_free_units(card: Card) -> int:
    return card.free_units if card.is_usable else 0
