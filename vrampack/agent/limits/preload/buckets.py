"""How fast each container may ask: a bucket of tokens for each, which fills with time. Nothing is refused, only later."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class Buckets:
    """One bucket for each key. A full one is forgotten: it is as good as new."""

    def __init__(self, *, per_second: float, most: float, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._most = most
        self._clock = clock
        self._buckets: dict[Hashable, _Bucket] = {}

    def take(self, key: Hashable, tokens: float = 1.0) -> float:
        """Take them, and say how many seconds to wait before the next: 0 unless the bucket is overdrawn."""
        bucket = self._filled(key)
        bucket.tokens = max(
            bucket.tokens - tokens, -self._most
        )  # whoever overdraws wildly pays for a bucketful at most
        return max(0.0, -bucket.tokens / self._per_second)

    def forget(self, key: Hashable) -> None:
        """Nobody of this key is left; what it overdrew is remembered until it is paid."""
        if self._filled(key).tokens >= self._most:
            del self._buckets[key]

    def _filled(self, key: Hashable) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.setdefault(key, _Bucket(self._most, now))
        bucket.tokens = min(self._most, bucket.tokens + (now - bucket.at) * self._per_second)
        bucket.at = now
        return bucket
