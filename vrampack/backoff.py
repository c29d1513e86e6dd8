"""How long to wait after failures in a row: twice as long after each, up to a longest wait."""

from __future__ import annotations

import random
from dataclasses import dataclass

MAX_DOUBLINGS = 10
"""Far beyond every longest wait; without it a failure that lasts for months would be too large a power for a float."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The first and the longest wait."""

    first_seconds: float
    longest_seconds: float

    def compute_seconds(self, failures: int) -> float:
        """The wait after so many failures; the first one is 1."""
        return min(self.longest_seconds, self.first_seconds * 2.0 ** min(failures - 1, MAX_DOUBLINGS))

    def draw_seconds(self, failures: int) -> float:
        """The same wait, half of it random, so that the agents of a cluster do not try again all at once."""
        return self.compute_seconds(failures) * random.uniform(0.5, 1)  # noqa: S311 - spreads load
