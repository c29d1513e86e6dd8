"""Whether a watch is read as fast as the server sends.

Bytes wait in the socket while the event loop stands still (a suspended process, a collection, no CPU), and the first one
that is read afterwards says nothing about the others. A reader that has to wait for bytes has read all that came. So it reports
each wait, and waits for at most a second at a time: a reader that has reported nothing for longer did not run.

    reads on time --no wait begun or ended for 3 s--> behind --has waited for 0.1 s in all, or a list ended--> reads on time
"""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

WAIT_SECONDS = 1.0
"""A wait for bytes is cut into pieces of this, so that one in a quiet cluster differs from a loop that stands still."""
STALL_SECONDS = 3.0
"""Three of these pieces: a loop that is merely busy is never that late."""
SETTLED_SECONDS = 0.1
"""Of waiting after a stall. The first wait may be one for the server's next packet: it sends no more than a window of bytes
(64 KiB and up) before it hears from us again, which takes a millisecond or two each time."""


class WatchLag:
    """Of one resource. Told by the reader of its watches, asked by who wants to trust what it read."""

    def __init__(self, resource: str, *, clock: Callable[[], float]) -> None:
        self._resource = resource
        self._clock = clock
        self._turned_at: float | None = None
        """When a wait last began or ended; None: no watch is read, and how old the last word is says all."""
        self._is_waiting = False
        self._unsettled_seconds = 0.0
        """How long the reader has yet to wait until it has read everything. 0: it has."""

    def describe_lag(self) -> str:
        """Why what was read must not be trusted now; empty when it may."""
        if self._turned_at is None:
            return ""
        passed = self._clock() - self._turned_at
        if passed > STALL_SECONDS:
            return f"the watch of {self._resource} was not read for {passed:.0f} s"
        if self._unsettled_seconds > (passed if self._is_waiting else 0.0):
            return f"the watch of {self._resource} is being read after a stall"
        return ""

    def note_wait_started(self) -> None:
        """Everything that came was read."""
        self._turn()
        self._is_waiting = True

    def note_wait_ended(self) -> None:
        """Something came, or a piece of the wait is over."""
        waited = self._turn()
        self._is_waiting = False
        if waited <= STALL_SECONDS:
            self._unsettled_seconds = max(0.0, self._unsettled_seconds - waited)

    def note_watch_ended(self) -> None:
        """Nothing is read until the next watch. One that was behind leaves the next one behind."""
        if not self.describe_lag():
            self._turned_at = None

    def note_list_finished(self) -> None:
        """A list has everything that was missed."""
        self._turned_at, self._unsettled_seconds = None, 0.0

    def _turn(self) -> float:
        """Seconds since the last wait began or ended."""
        now = self._clock()
        passed = 0.0 if self._turned_at is None else now - self._turned_at
        self._turned_at = now
        if passed > STALL_SECONDS:
            log.warning("watch reader stalled resource=%s seconds=%.1f", self._resource, passed)
            self._unsettled_seconds = SETTLED_SECONDS
        return passed
