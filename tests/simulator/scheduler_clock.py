"""A clock that a test turns by hand: a back-off of minutes takes no time, and never ends by itself."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

START = datetime(2030, 1, 1, tzinfo=UTC)


class HandClock:
    """`now` and `sleep` are what a scheduler is given."""

    def __init__(self) -> None:
        self._now = START
        self._sleepers: dict[asyncio.Future[None], datetime] = {}

    def now(self) -> datetime:
        return self._now

    async def sleep(self, seconds: float) -> None:
        sleeper = asyncio.get_running_loop().create_future()
        self._sleepers[sleeper] = self._now + timedelta(seconds=seconds)
        try:
            await sleeper
        finally:
            del self._sleepers[sleeper]

    @property
    def asleep_for(self) -> float | None:
        """How long the sleeper still wants to sleep; None without one."""
        return min(((due - self._now).total_seconds() for due in self._sleepers.values()), default=None)

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        for sleeper, due in self._sleepers.items():
            if due <= self._now and not sleeper.done():
                sleeper.set_result(None)
