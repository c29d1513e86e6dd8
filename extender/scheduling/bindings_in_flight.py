"""How many Bindings are sent at once: fewer while the API server does not answer them in time.

An API server that answers thirty a second and has a hundred to answer answers none within three seconds: each is then looked up and
sent again, and it never gets less to do. So a round without an answer halves the number, and each answer adds a part of one, up
to what the connections carry (additive increase, multiplicative decrease, as TCP does).

Of those that wait, the newest is sent first: it has the most time left for its answer. In order of arrival each would have waited as
long as it may, and where answers are slow none would be in time.
"""

from __future__ import annotations

import asyncio
import logging

log = logging.getLogger(__name__)

FEWEST = 1
MOST = 100


class BindingsInFlight:
    """One of a process."""

    def __init__(self) -> None:
        self._most = float(MOST)
        self._count = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._entered = 0
        self._entered_before_halving = 0
        """Those were sent under the number before: that they are not answered either says nothing new."""

    @property
    def most(self) -> int:
        return int(self._most)

    async def enter(self, seconds: float) -> int:
        """The number of this Binding, which may be sent now; 0 where none could be sent for so long."""
        if self._count >= self.most or self._waiting:
            if not await self._wait(seconds):
                return 0
        else:
            self._count += 1
        self._entered += 1
        return self._entered

    def leave(self, number: int, *, is_silent: bool) -> None:
        """The Binding is over. `is_silent`: no answer came in time, or that there are too many (429)."""
        if not is_silent:
            self._most = min(MOST, self._most + 1 / self._most)
        elif number > self._entered_before_halving:
            self._entered_before_halving = self._entered
            self._most = max(FEWEST, self._most / 2)
            log.warning("the API server is too slow for its Bindings at_once=%d", self.most)
        self._give_back()

    async def _wait(self, seconds: float) -> bool:
        """True: a place was given."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await asyncio.wait([turn], timeout=seconds)
        except asyncio.CancelledError:
            if turn.done():
                self._give_back()
            else:
                self._waiting.remove(turn)
            raise
        if not turn.done():
            self._waiting.remove(turn)
        return turn.done()

    def _give_back(self) -> None:
        self._count -= 1
        while self._waiting and self._count < self.most:
            self._count += 1
            self._waiting.pop().set_result(None)
