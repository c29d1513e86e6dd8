"""The one place where the suite polls: tests state what they wait for and never how long to sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

INTERVAL_SECONDS = 0.02
"""Short beside anything waited for (a bind takes tens of milliseconds), long enough not to load two cores."""

T = TypeVar("T")


def wait_until(
    predicate: Callable[[], T],
    *,
    timeout_seconds: float = 10,
    what: str | Callable[[], str] = "",
    interval_seconds: float = INTERVAL_SECONDS,
) -> T:
    """Return the first true answer of `predicate`; raise `TimeoutError` naming `what` when none came in time.

    `what` may be a function: it is called at the deadline, to show the state that was there instead.
    """
    deadline = time.monotonic() + timeout_seconds
    while not (answer := predicate()):
        if time.monotonic() > deadline:
            missing = what() if callable(what) else what or getattr(predicate, "__name__", "the condition")
            raise TimeoutError(f"{missing}: not within {timeout_seconds} s")
        time.sleep(interval_seconds)
    return answer
