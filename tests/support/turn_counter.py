"""How many turns of the event loop others got while something was awaited."""

from __future__ import annotations

import asyncio


class TurnCounter:
    """Counts from its making until `stop`."""

    def __init__(self) -> None:
        self._turns = 0
        self._task = asyncio.create_task(self._count())

    def stop(self) -> int:
        """The turns so far."""
        self._task.cancel()
        return self._turns

    async def _count(self) -> None:
        while True:
            self._turns += 1
            await asyncio.sleep(0)
