"""How fast a core of this machine is, beside the one that budgets are meant for."""

from __future__ import annotations

import time

REFERENCE_SECONDS = 0.042
"""CPU seconds that the fixed work takes on the reference."""


def measure_speed() -> float:
    """As a share of the reference: the best of three, so that what else runs here matters little."""
    return REFERENCE_SECONDS / min(_time_fixed_work() for _ in range(3))


def _time_fixed_work() -> float:
    started = time.process_time()
    found: dict[int, int] = {}
    for number in range(300_000):
        found[number % 1000] = found.get(number % 1000, 0) + number
    return time.process_time() - started
