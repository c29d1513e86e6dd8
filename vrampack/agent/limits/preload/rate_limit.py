"""Limits how fast each container may ask, by a token bucket for each. Questions are delayed, never refused."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class _TokenBucket:
    tokens: float
    filled_at: float


class RateLimiter:
    """One bucket for each key. A full one is dropped: it equals a new one."""

    def __init__(self, *, per_second: float, capacity: float, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._capacity = capacity
        self._clock = clock
        self._buckets: dict[Hashable, _TokenBucket] = {}

    def take_tokens(self, key: Hashable, tokens: float = 1.0) -> float:
        """Take tokens. Returns how many seconds to wait before taking more: 0 unless the bucket is overdrawn."""
        bucket = self._refill(key)
        bucket.tokens = max(bucket.tokens - tokens, -self._capacity)  # an overdraft is at most one bucketful
        return max(0.0, -bucket.tokens / self._per_second)

    def forget_key(self, key: Hashable) -> None:
        """The last connection of this key is gone; the bucket is dropped, but an overdraft stays until it is paid off."""
        if self._refill(key).tokens >= self._capacity:
            del self._buckets[key]

    def _refill(self, key: Hashable) -> _TokenBucket:
        now = self._clock()
        bucket = self._buckets.setdefault(key, _TokenBucket(self._capacity, now))
        bucket.tokens = min(self._capacity, bucket.tokens + (now - bucket.filled_at) * self._per_second)
        bucket.filled_at = now
        return bucket
