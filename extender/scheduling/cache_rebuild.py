"""What happens after a fault of our own: the caches are built again from the ledger, and the service goes on.

A fault in a verb or a task may come from a cache that is no longer right, which would fail again at every call, or give
wrong verdicts. Nothing in the caches is needed: summaries, verdicts, ranks, kept cards and ready answers all follow from the
ledger. The call that failed is answered with an error, the fault is counted, and an alert tells of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from math import inf
from typing import Protocol

from extender.metrics import ExtenderMetrics

log = logging.getLogger(__name__)

MIN_PAUSE_SECONDS = 1.0
"""Between two rebuilds, doubling while faults go on: with 5,000 nodes one takes 0.2 s, and any pod may cause the next."""
MAX_PAUSE_SECONDS = 60.0
RESTART_SECONDS = 1.0
"""Before a task that failed begins again."""


class Cache(Protocol):
    """Anything that follows from the ledger."""

    def forget_all(self) -> None:
        """Become as it was when the process began; what it needs of the ledger is read when it is next asked."""
        ...


class CacheRebuild:
    """Forgets all caches together: some hold objects of others."""

    def __init__(self, metrics: ExtenderMetrics, clock: Callable[[], float]) -> None:
        self._faults = metrics.internal_errors
        self._clock = clock
        self._caches: list[Cache] = []
        self._pause = MIN_PAUSE_SECONDS
        self._not_before = -inf

    def add_cache(self, cache: Cache) -> None:
        self._caches.append(cache)

    def on_fault(self, during: str) -> None:
        """An exception that nothing expected was handled and logged; `during` is the verb or task."""
        self._faults.labels(during).inc()
        now = self._clock()
        if now < self._not_before:
            return
        is_repeated = now < self._not_before + self._pause
        self._pause = min(2 * self._pause, MAX_PAUSE_SECONDS) if is_repeated else MIN_PAUSE_SECONDS
        self._not_before = now + self._pause
        log.warning("caches forgotten after an internal error during=%s next_at_most_in=%.0fs", during, self._pause)
        for cache in self._caches:
            cache.forget_all()

    async def keep_running(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a task that has no state but in caches and in its object; begin it again after a fault."""
        while True:
            try:
                await run()
            except Exception:
                log.exception("task failed and begins again task=%s", name)
                self.on_fault(name)
                await asyncio.sleep(RESTART_SECONDS)
            else:
                return
