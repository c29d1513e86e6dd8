"""Whether a node has capacity that it did not have before: what may let a refused pod fit."""

from __future__ import annotations

from vrampack.cards.node import Card, Node


def has_gained_capacity(before: Node | None, after: Node) -> bool:
    """Whether some request that did not fit on `before` may fit on `after`; never false when one does.

    A card is the same if its index, uuid, model and units are: a replaced card is a new one, and its room is gained.
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
