"""What a card has besides its memory: amounts by the name of an axis, such as a percentage of its compute.

Memory is counted apart, in units: sizes of cards, limits, payments and policies are about memory alone. Every other axis only
decides whether a request fits. No annotation and no resource names one yet, so nodes and pods of the API server have none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Amounts: TypeAlias = tuple[tuple[str, int], ...]
"""Axis and amount, sorted by axis; each amount is above 0. An axis that is missing has 0."""


def add_amounts(terms: Iterable[Amounts]) -> Amounts:
    """The sum, axis by axis."""
    total: dict[str, int] = {}
    for amounts in terms:
        for axis, amount in amounts:
            total[axis] = total.get(axis, 0) + amount
    return tuple(sorted(total.items()))


def find_largest(terms: Iterable[Amounts]) -> Amounts:
    """The largest amount of each axis."""
    largest: dict[str, int] = {}
    for amounts in terms:
        for axis, amount in amounts:
            largest[axis] = max(amount, largest.get(axis, 0))
    return tuple(sorted(largest.items()))


def has_room_for(asked: Amounts, *, offered: Amounts, taken: Amounts) -> bool:
    """Whether what is asked fits beside what is taken, on each axis."""
    most, used = dict(offered), dict(taken)
    return all(amount <= most.get(axis, 0) - used.get(axis, 0) for axis, amount in asked)


def has_freed_any(before: Amounts, after: Amounts) -> bool:
    """Whether less is taken on some axis than before."""
    left = dict(after)
    return any(left.get(axis, 0) < amount for axis, amount in before)
