"""How long to wait before the next try of a call: client-go's figures, so that a flapping server is not flooded."""

from __future__ import annotations

import random
import time

from vrampack.backoff import Backoff
from vrampack.kube.errors import NoAnswerError, RefusedError

FIRST_SECONDS = 0.8
LONGEST_SECONDS = 30.0
RESET_SECONDS = 120.0
"""After this long without a failure, the next one counts as the first. A single event in between does not reset the count: a
server that keeps answering and failing must not be listed each time."""
AFTER_SPREAD = 1.5
"""Those whom the API server sent away with one Retry-After come back within half as long again, not at once."""


def extend_pause(seconds: float, error: NoAnswerError | RefusedError) -> float:
    """The given pause, or a longer one if the API server asked for it (`Retry-After`)."""
    return max(seconds, error.retry_after_seconds * random.uniform(1, AFTER_SPREAD))  # noqa: S311 - spreads load


class RetryBackoff:
    """Counts the failures of one server, and how long to wait after each: a `Backoff`."""

    def __init__(self) -> None:
        self.failures = 0
        """Failures in a row, with less than `RESET_SECONDS` between two."""
        self._asked_at = 0.0

    def next_seconds(self, longest: float = LONGEST_SECONDS) -> float:
        """Count one more failure. Returns how long to wait after it, at most `longest`."""
        now = time.monotonic()
        if now - self._asked_at > RESET_SECONDS:
            self.failures = 0
        self._asked_at = now
        self.failures += 1
        return Backoff(FIRST_SECONDS, longest).draw_seconds(self.failures)
