"""Whether a watch is read as fast as the server sends.

Bytes wait in the socket while the event loop stands still (a suspended process, a collection, no CPU), and the first that is
read afterwards says nothing about the rest. A reader that must wait for bytes has read everything that came. So it reports
each wait, and waits for at most a second at a time: a reader that reports nothing for longer is not running.

    reads on time --no wait begun or ended for 3 s--> behind --has waited for 0.1 s in all, or a list ended--> reads on time
"""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

WAIT_SECONDS = 1.0
"""A wait for bytes is cut into pieces of this length, so that a quiet cluster differs from a loop that stands still."""
STALL_SECONDS = 3.0
"""Three of these pieces: a loop that is merely busy is never that late."""
SETTLED_SECONDS = 0.1
"""How long to wait in all after a stall. The first wait may be for the server's next packet: it sends no more than a window
of bytes (64 KiB and up) before it hears from us again, which takes a millisecond or two each time."""


class WatchLag:
    """The lag of one resource's watch. The reader of the watch reports to it; code that relies on what was read asks it."""

    def __init__(self, resource: str, *, clock: Callable[[], float]) -> None:
        self._resource = resource
        self._clock = clock
        self._turned_at: float | None = None
        """When a wait last began or ended; None: no watch is read, and only the age of the last event counts."""
        self._is_waiting = False
        self._unsettled_seconds = 0.0
        """How long the reader must still wait before it counts as having read everything; 0: it has."""

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
        """Everything that came has been read."""
        self._turn()
        self._is_waiting = True

    def note_wait_ended(self) -> None:
        """Something came, or a piece of the wait is over."""
        waited = self._turn()
        self._is_waiting = False
        if waited <= STALL_SECONDS:
            self._unsettled_seconds = max(0.0, self._unsettled_seconds - waited)

    def note_watch_ended(self) -> None:
        """Nothing is read until the next watch. If this watch was behind, so is the next one."""
        if not self.describe_lag():
            self._turned_at = None

    def note_list_finished(self) -> None:
        """A list was read: it has everything that was missed."""
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
