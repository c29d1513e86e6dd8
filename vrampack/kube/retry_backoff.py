"""How long to wait before the next list or watch: client-go's figures, so that a flapping server is not flooded."""

from __future__ import annotations

import random
import time

FIRST_SECONDS = 0.8
LONGEST_SECONDS = 30.0
RESET_SECONDS = 120.0
"""Of peace, after which the next failure is a first one again. One event in between is none: a server that answers and
fails again and again must not be listed each time."""


class RetryBackoff:
    """A wait that doubles with each failure; half of it is chance, so that the agents of a cluster do not ask as one."""

    def __init__(self) -> None:
        self.failures = 0
        """In a row, with less than `RESET_SECONDS` between two."""
        self._asked_at = 0.0

    def next_seconds(self) -> float:
        """Count one more failure; how long to wait after it."""
        now = time.monotonic()
        if now - self._asked_at > RESET_SECONDS:
            self.failures = 0
        self._asked_at = now
        doubled = FIRST_SECONDS * 2.0 ** min(self.failures, 10)
        self.failures += 1
        return min(LONGEST_SECONDS, doubled) * random.uniform(0.5, 1)  # noqa: S311 - spreads load
