"""Cuts a long list into pages of bounded size, by the sizes of the items rather than their number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PageRange:
    """One page of a list: items from `start` up to `stop`; pages are counted from 1."""

    number: int
    page_count: int
    start: int
    stop: int
    item_count: int

    @property
    def previous_number(self) -> int | None:
        return self.number - 1 if self.number > 1 else None

    @property
    def next_number(self) -> int | None:
        return self.number + 1 if self.number < self.page_count else None


def select_page(weights: Sequence[int], number: int, *, budget: int, most_items: int) -> PageRange:
    """Page `number` of items with these weights: as many as fit the budget, at least one. Past the end, the last page."""
    starts, weight = [0], 0
    for at, each in enumerate(weights):
        if at > starts[-1] and (weight + each > budget or at - starts[-1] >= most_items):
            starts.append(at)
            weight = 0
        weight += each
    number = min(max(number, 1), len(starts))
    stop = starts[number] if number < len(starts) else len(weights)
    return PageRange(number, len(starts), starts[number - 1], stop, len(weights))
