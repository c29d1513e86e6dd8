"""What the node offers now: a single value that discovery writes, for kubelet, the API server and the fence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

from vrampack.cards.node import CardFacts


@dataclass(frozen=True, slots=True)
class Advertised:
    """The cards of the node, and the problem, if any, that keeps them from new pods."""

    cards: tuple[CardFacts, ...] = ()
    problem: str = ""
    """Empty if there is none. With one, every card is shown as unhealthy: running containers go on, new ones do not start."""
    is_discovered: bool = False
    """Whether discovery has reported anything yet."""
    is_list_too_long: bool = False
    """Whether kubelet could not take the list of these cards even as unhealthy ones."""

    @property
    def published_cards(self) -> tuple[CardFacts, ...]:
        """The cards that kubelet and the API server see."""
        if not self.problem:
            return self.cards
        return tuple(replace(card, healthy=False) for card in self.cards)

    @property
    def listed_cards(self) -> tuple[CardFacts, ...]:
        """The cards whose devices kubelet gets. A list that is too long would end the stream again and again."""
        return () if self.is_list_too_long else self.published_cards


class Advertisement:
    """Holds the current offer and wakes the tasks that wait for a change."""

    def __init__(self, *, find_list_problem: Callable[[tuple[CardFacts, ...]], str]) -> None:
        self._find_list_problem = find_list_problem
        """Why these cards cannot be offered at all, e.g. too many devices; empty when they can."""
        self._problems: dict[str, str] = {"list": ""}
        self._cards: tuple[CardFacts, ...] = ()
        self._is_discovered = False
        self.current = Advertised()
        self._changed = asyncio.Event()

    def update_cards(self, cards: tuple[CardFacts, ...], problem: str) -> None:
        """Discovery's result: all cards of the node, and what is wrong with the driver."""
        self._cards = cards
        self._is_discovered = True
        self._problems["list"] = self._find_list_problem(cards)
        self.block("driver", problem)

    def block(self, source: str, problem: str) -> None:
        """Set one source's reason to keep all cards from new pods; an empty one withdraws it."""
        self._problems[source] = problem
        problems = "; ".join(filter(None, self._problems.values()))
        made = Advertised(self._cards, problems, self._is_discovered, is_list_too_long=bool(self._problems["list"]))
        if made != self.current:
            self.current = made
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    async def watch_changes(self) -> AsyncIterator[Advertised]:
        """The current offer, and then each one that looks different to kubelet or the API server."""
        last: Advertised | None = None
        while True:
            changed = self._changed
            if last is None or self.current != last:
                last = self.current
                yield last
                continue
            await changed.wait()
