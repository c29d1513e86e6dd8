"""Applies large numbers of ledger changes ahead of the verbs, in slices that hold the loop for a few milliseconds.

The engine and the nominator apply changes when they are next asked, which is cheapest for the few changes between two
calls. After thousands of them (the first lists, hundreds of nominations at once) the next call would hold the loop for all
of them, so it waits until they are applied here. A verb gives the same answer either way.
"""

from __future__ import annotations

import asyncio

from extender.state.nominator import NODES_PER_SLICE, Nominator
from policies.engine.engine import Engine

MIN_CHANGES = 16
"""Node changes that are worth a turn of the loop: a verb applies fewer in less than a millisecond."""


class EngineFollower:
    """One for each engine. `run` until cancelled."""

    def __init__(self, engine: Engine, nominator: Nominator) -> None:
        self._engine = engine
        self._nominator = nominator
        self._changes = 0
        """Node changes since the last slice."""
        self._wake_up = asyncio.Event()
        self.is_behind = False
        """Whether there are more changes than a verb should apply."""

    def on_node_changed(self) -> None:
        self._changes += 1
        if self._changes == MIN_CHANGES:
            self.is_behind = True
            self._wake_up.set()

    def forget_all(self) -> None:
        """The engine was emptied: the next verb would apply all nodes, so it waits until they are applied here."""
        self.is_behind = True
        self._wake_up.set()

    async def run(self) -> None:
        """Catch up whenever many changes have piled up."""
        while True:
            await self._wake_up.wait()
            await self.catch_up()

    async def catch_up(self) -> None:
        """Apply all changes, slice by slice."""
        has_more = True
        while has_more:
            self._wake_up.clear()
            self._changes = 0
            has_more = self.follow_slice()
            if not has_more:
                self.is_behind = False
            await asyncio.sleep(0)

    def follow_slice(self) -> bool:
        """Apply some changes; true when more are left."""
        if self._nominator.follow_slice(NODES_PER_SLICE):
            return True
        return self._engine.follow_slice(self._nominator.list_floors(), NODES_PER_SLICE)
