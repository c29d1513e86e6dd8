"""One laying of waiting pods onto the nodes that gained room, in slices that hold the loop for a few milliseconds."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence

from cards.node import Node
from cards.request import Request
from policies.layout import Laid, Layout
from policies.tuning import PolicyName

SLICE = 250
"""Nodes looked at before others get their turn: about 3 ms."""
MOST_LOOKED_AT = 20_000
"""Nodes looked at in one round, all pods together: a fifth of a second of work at most, and the rest is the next round's."""


class Plan:
    """A copy of the nodes that gained room, filled pod by pod.

    `grown` are those nodes, the latest first, each with the room generation at which it gained room.
    """

    def __init__(self, grown: Sequence[tuple[int, Node]], held: Iterable[tuple[Laid, Request]]) -> None:
        self._newest_first = [-generation for generation, _ in grown]
        self._names = [node.name for _, node in grown]
        self._layout = Layout(node for _, node in grown)
        self._bare = Layout(node for _, node in grown)
        self._full: dict[tuple[Request, PolicyName], int] = {}
        """Of how many nodes, the latest first, it is known that none takes the request any more."""
        self._hopeless: dict[tuple[Request, PolicyName], int] = {}
        """The same, were nothing laid there."""
        self._looked_at = 0
        for laid, request in held:
            self._layout.hold(laid, request)

    @property
    def is_spent(self) -> bool:
        return self._looked_at >= MOST_LOOKED_AT

    async def lay(
        self, request: Request, policy: PolicyName, *, since: int, without: Collection[str] = ()
    ) -> Laid | None:
        """Take the best place on the nodes that gained room after `since`, or None."""
        count = self._count(since)
        if count <= self._full.get((request, policy), 0):
            return None
        names = [name for name in self._names[:count] if name not in without] if without else self._names[:count]
        laid = await self._best(self._layout, request, policy, names)
        if laid is not None:
            self._layout.hold(laid, request)
        elif not without:
            self._full[request, policy] = count
        return laid

    async def is_hopeless(self, request: Request, policy: PolicyName, *, since: int) -> bool:
        """Whether it would find no place there even if it were alone."""
        count = self._count(since)
        if count > self._hopeless.get((request, policy), 0):
            if await self._best(self._bare, request, policy, self._names[:count]) is not None:
                return False
            self._hopeless[request, policy] = count
        return True

    def _count(self, since: int) -> int:
        return bisect_left(self._newest_first, -since)

    async def _best(self, layout: Layout, request: Request, policy: PolicyName, names: Sequence[str]) -> Laid | None:
        best: Laid | None = None
        for start in range(0, len(names), SLICE):
            part = names[start : start + SLICE]
            best = layout.best(request, policy, part, or_else=best)
            self._looked_at += len(part)
            if self._looked_at // SLICE != (self._looked_at - len(part)) // SLICE:
                await asyncio.sleep(0)
        return best
