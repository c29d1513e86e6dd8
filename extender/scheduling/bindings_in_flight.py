"""How many Bindings are sent at once: fewer while the API server does not answer them in time.

An API server that answers thirty a second and has a hundred to answer answers none within three seconds: each is then looked up and
sent again, and it never gets less to do. So a round without an answer halves the number, and each answer adds a part of one, up
to what the connections carry (additive increase, multiplicative decrease, as TCP does).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

log = logging.getLogger(__name__)

FEWEST = 4
MOST = 100


class BindingsInFlight:
    """Those that wait are sent in the order in which they came."""

    def __init__(self) -> None:
        self._most = float(MOST)
        self._count = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._entered = 0
        self._entered_before_halving = 0
        """Those were sent under the number before: that they are not answered either says nothing new."""

    @property
    def most(self) -> int:
        return int(self._most)

    async def enter(self, seconds: float) -> int:
        """The number of this Binding, which may be sent now; 0 where none could be sent for so long."""
        if self._count >= self.most or self._waiting:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await asyncio.wait([turn], timeout=seconds)
            if not turn.done():
                turn.cancel()
                return 0
        else:
            self._count += 1
        self._entered += 1
        return self._entered

    def leave(self, number: int, *, is_silent: bool) -> None:
        """The Binding is over. `is_silent`: no answer came in time."""
        if not is_silent:
            self._most = min(MOST, self._most + 1 / self._most)
        elif number > self._entered_before_halving:
            self._entered_before_halving = self._entered
            self._most = max(FEWEST, self._most / 2)
            log.warning("the API server does not answer Bindings in time at_once=%d", self.most)
        self._count -= 1
        while self._waiting and self._count < self.most:
            turn = self._waiting.popleft()
            if not turn.done():
                self._count += 1
                turn.set_result(None)
