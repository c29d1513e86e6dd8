"""One laying of waiting pods onto the nodes that gained room, in slices that hold the loop for a few milliseconds."""

from __future__ import annotations

import asyncio
import heapq
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from policies.layout import Laid, Layout
from policies.tuning import PolicyName
from vrampack.cards.node import Node
from vrampack.cards.request import Request

SLICE = 100
"""Nodes looked at before others get their turn: about 3 ms."""
MOST_LOOKED_AT = 50_000
"""Nodes looked at in one round, all pods together: a second and a half of work at most, and the rest is the next round's."""

Shape = tuple[Request, PolicyName]
Place = tuple[tuple[float, str], int, Laid]
"""A rank, how often the node had been filled when it was found, and the place."""


class Plan:
    """A copy of the nodes that gained room, filled pod by pod.

    `grown` are those nodes, the latest first, each with the room generation at which it gained room. The places of a
    request shape are found once and kept in order; filling a node makes its old places stale and adds its new ones.
    """

    def __init__(self, grown: Sequence[tuple[int, Node]], held: Iterable[tuple[Laid, Request]]) -> None:
        self._newest_first = [-generation for generation, _ in grown]
        self._names = [node.name for _, node in grown]
        self._position = {name: position for position, name in enumerate(self._names)}
        self._layout = Layout(node for _, node in grown)
        self._bare = Layout(node for _, node in grown)
        self._filled: defaultdict[str, int] = defaultdict(int)
        self._places: dict[tuple[Shape, int], list[Place]] = {}
        """Heaps, by shape and by how many of the nodes, the latest first, are in it."""
        self._full: dict[Shape, int] = {}
        """Of how many nodes, the latest first, it is known that none takes the shape any more."""
        self._hopeless: dict[Shape, int] = {}
        """The same, were nothing laid there; the next node takes those in `_fits_alone`."""
        self._fits_alone: set[Shape] = set()
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
        shape, count = (request, policy), self._count(since)
        if count <= self._full.get(shape, 0):
            return None
        places = self._places.get((shape, count))
        if places is None:
            places = self._places[shape, count] = await self._find(shape, count)
        laid = self._best(places, without)
        if laid is not None:
            self._hold(laid, request)
            await asyncio.sleep(0)
        elif not without:
            self._full[shape] = count
        return laid

    async def is_hopeless(self, request: Request, policy: PolicyName, *, since: int) -> bool:
        """Whether it would find no place there even if it were alone."""
        shape, count = (request, policy), self._count(since)
        while (position := self._hopeless.get(shape, 0)) < count:
            if shape in self._fits_alone or self._bare.place(self._names[position], request, policy) is not None:
                self._fits_alone.add(shape)
                return False
            self._hopeless[shape] = position + 1
            await self._look()
        return True

    def _count(self, since: int) -> int:
        return bisect_left(self._newest_first, -since)

    async def _find(self, shape: Shape, count: int) -> list[Place]:
        places: list[Place] = []
        for name in self._names[:count]:
            laid = self._layout.place(name, *shape)
            if laid is not None:
                places.append((laid.rank, self._filled[name], laid))
            await self._look()
        heapq.heapify(places)
        return places

    def _best(self, places: list[Place], without: Collection[str]) -> Laid | None:
        """The best place that is not stale; the heap keeps all but stale ones."""
        passed_over: list[Place] = []
        best: Laid | None = None
        while places and best is None:
            _, filled, laid = places[0]
            if filled == self._filled[laid.node_name] and laid.node_name not in without:
                best = laid
            else:
                passed = heapq.heappop(places)
                if filled == self._filled[laid.node_name]:
                    passed_over.append(passed)
        for place in passed_over:
            heapq.heappush(places, place)
        return best

    def _hold(self, laid: Laid, request: Request) -> None:
        name = laid.node_name
        self._layout.hold(laid, request)
        self._filled[name] += 1
        for (shape, count), places in self._places.items():
            if self._position[name] < count:
                self._looked_at += 1
                again = self._layout.place(name, *shape)
                if again is not None:
                    heapq.heappush(places, (again.rank, self._filled[name], again))

    async def _look(self) -> None:
        """Count one more node, and let others have their turn now and then."""
        self._looked_at += 1
        if self._looked_at % SLICE == 0:
            await asyncio.sleep(0)
