"""Whether this extender may write for autoscalers now, of several: the one rule for all that is written here."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol

from extender.state.sync import ReadinessCheck
from vrampack.backoff import Backoff
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.retry_backoff import extend_pause

PAUSING_STATUSES = (HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS)
"""No other object can be written either."""
BACKOFF = Backoff(first_seconds=5.0, longest_seconds=300.0)


class Lease(Protocol):
    """Which of several extenders acts."""

    @property
    def is_held(self) -> bool: ...


class WriteTurn:
    """It is told how each write ended."""

    def __init__(self, lease: Lease, readiness: ReadinessCheck, *, clock: Callable[[], float]) -> None:
        self._lease = lease
        self._readiness = readiness
        self._clock = clock
        self._paused_until = 0.0
        self._failures = 0
        """In a row, of the API server."""

    def may_write(self) -> bool:
        is_paused = self._clock() < self._paused_until
        return self._lease.is_held and not is_paused and not self._readiness.find_unready_reason()

    def note_success(self) -> None:
        self._failures = 0

    def note_failure(self, error: RefusedError | NoAnswerError) -> bool:
        """Whether nothing else could be written either, so that there is a pause now."""
        is_pausing = isinstance(error, NoAnswerError) or error.status in PAUSING_STATUSES
        if is_pausing:
            self._failures += 1
            self._paused_until = self._clock() + extend_pause(BACKOFF.compute_seconds(self._failures), error)
        return is_pausing
