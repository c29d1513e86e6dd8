"""What the node offers now: the one value that discovery writes and that kubelet, the API server and the fence read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

from vrampack.cards.node import CardFacts


@dataclass(frozen=True, slots=True)
class Offer:
    """The cards of the node, and why none of them is given to new pods."""

    cards: tuple[CardFacts, ...] = ()
    problem: str = ""
    """Empty when all is well. With a problem every card is shown as unhealthy: what runs goes on, nothing comes."""
    is_known: bool = False
    """Whether discovery said anything yet."""
    is_too_long: bool = False
    """Whether kubelet could not even be told of these cards as unhealthy ones."""

    @property
    def shown(self) -> tuple[CardFacts, ...]:
        """The cards as kubelet and the API server are told of them."""
        if not self.problem:
            return self.cards
        return tuple(replace(card, healthy=False) for card in self.cards)

    @property
    def listed(self) -> tuple[CardFacts, ...]:
        """Those of which kubelet gets the devices. A list that is too long would end the stream, again and again."""
        return () if self.is_too_long else self.shown


class Board:
    """Holds the present offer and wakes those who wait for another."""

    def __init__(self, *, check: Callable[[tuple[CardFacts, ...]], str]) -> None:
        self._check = check
        """Why these cards cannot be offered at all, e.g. too many devices; empty when they can."""
        self._problems: dict[str, str] = {"list": ""}
        self._cards: tuple[CardFacts, ...] = ()
        self._is_known = False
        self.offer = Offer()
        self._changed = asyncio.Event()

    def found(self, cards: tuple[CardFacts, ...], problem: str) -> None:
        """Discovery's word: all cards of the node, and what is wrong with the driver."""
        self._cards = cards
        self._is_known = True
        self._problems["list"] = self._check(cards)
        self.object("driver", problem)

    def object(self, who: str, problem: str) -> None:
        """Somebody's reason why no card is given to new pods; an empty one takes it back."""
        self._problems[who] = problem
        problems = "; ".join(filter(None, self._problems.values()))
        made = Offer(self._cards, problems, self._is_known, is_too_long=bool(self._problems["list"]))
        if made != self.offer:
            self.offer = made
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    async def offers(self) -> AsyncIterator[Offer]:
        """The present offer, and then each one that is shown differently."""
        last: Offer | None = None
        while True:
            changed = self._changed
            if last is None or self.offer != last:
                last = self.offer
                yield last
                continue
            await changed.wait()
