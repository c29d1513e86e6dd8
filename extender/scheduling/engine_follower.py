"""Follows many changes of the ledger ahead of the verbs, in slices that hold the loop for a few milliseconds.

The engine and the nominator take up what changed when they are next asked, which is cheapest for the few changes between two
calls. After thousands of them (the first lists, hundreds of nominations at once) the next call would hold the loop for all,
so that it waits until they are taken up here. What a verb finds is the same either way.
"""

from __future__ import annotations

import asyncio

from extender.state.nominator import NODES_PER_SLICE, Nominator
from policies.engine.engine import Engine

MIN_CHANGES = 16
"""Changes of nodes before it is worth a turn of the loop: a verb takes up fewer in less than a millisecond."""


class EngineFollower:
    """One for each engine. `run` until cancelled."""

    def __init__(self, engine: Engine, nominator: Nominator) -> None:
        self._engine = engine
        self._nominator = nominator
        self._changes = 0
        """Of nodes, since the last slice."""
        self._wake_up = asyncio.Event()
        self.is_behind = False
        """Whether there is more to take up than a verb should on its way."""

    def on_node_changed(self) -> None:
        self._changes += 1
        if self._changes == MIN_CHANGES:
            self.is_behind = True
            self._wake_up.set()

    async def run(self) -> None:
        """Catch up whenever there is much to take up."""
        while True:
            await self._wake_up.wait()
            await self.catch_up()

    async def catch_up(self) -> None:
        """Take up all changes, slice by slice."""
        has_more = True
        while has_more:
            self._wake_up.clear()
            self._changes = 0
            has_more = self.follow_slice()
            if not has_more:
                self.is_behind = False
            await asyncio.sleep(0)

    def follow_slice(self) -> bool:
        """Take up some changes; whether there are more."""
        if self._nominator.follow_slice(NODES_PER_SLICE):
            return True
        return self._engine.follow_slice(self._nominator.list_floors(), NODES_PER_SLICE)
