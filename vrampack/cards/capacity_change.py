"""Decides how a change to a node may change verdicts: whether a rejected pod may fit now, or gets another kind of reason."""

from __future__ import annotations

from vrampack.cards.amounts import Amounts, has_freed_any
from vrampack.cards.node import Card, CardInstances, Node


def has_gained_capacity(before: Node | None, after: Node) -> bool:
    """Whether some request that did not fit on `before` may fit on `after`; never false when one does.

    A card is the same if its index, uuid, model, units and what else it offers are: a replaced card counts as new, and its free memory as gained.
    """
    if after.problem:
        return False
    if before is None or before.problem or before.injection is None:
        return any(_usable_free_units(card) for card in after.cards)
    if before.needs_references and not after.needs_references:
        return any(_usable_free_units(card) for card in after.cards)
    if not before.unserved_words <= after.unserved_words:
        return any(_usable_free_units(card) for card in after.cards)
    taken_over = set(map(id, before.cards)).intersection(map(id, after.cards))  # unchanged cards
    changed = [card for card in after.cards if id(card) not in taken_over]
    known = {_identity(card): card for card in before.cards if id(card) not in taken_over}
    return any(_has_card_gained(known.get(_identity(card)), card) for card in changed)


def has_changed_cards(before: Node | None, after: Node | None) -> bool:
    """Whether an unresolvable reason may have come or gone there: these depend on which cards there are, not on what they hold."""
    if before is None or after is None:
        return before is not after
    return (
        before.problem != after.problem
        or before.injection != after.injection
        or before.legacy != after.legacy
        or before.unserved_words != after.unserved_words
        or [(*_identity(card), card.reserve) for card in before.cards]
        != [(*_identity(card), card.reserve) for card in after.cards]
    )


def _has_card_gained(before: Card | None, after: Card) -> bool:
    free = _usable_free_units(after)
    if before is None or free > _usable_free_units(before):
        return bool(free)
    takes_more_pods = before.free_pods is not None and (after.free_pods is None or after.free_pods > before.free_pods)
    is_less_ruled = before.reserve != after.reserve or takes_more_pods or not before.tenants <= after.tenants
    return bool(free) and (
        is_less_ruled
        or _has_gained_instances(before.instances, after.instances)
        or has_freed_any(before.taken, after.taken)
    )


def _has_gained_instances(before: CardInstances | None, after: CardInstances | None) -> bool:
    if before is None or after is None:
        return before is not None
    return after.free > before.free or (before.are_per_container and not after.are_per_container)


def _identity(card: Card) -> tuple[int, str | None, str, int, Amounts]:
    return card.index, card.uuid, card.model, card.units, card.offered


def _usable_free_units(card: Card) -> int:
    return card.free_units if card.is_usable else 0
