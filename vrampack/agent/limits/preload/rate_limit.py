"""Limits how fast each container may ask, by a token bucket for each. Questions are delayed, never refused."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RateLimits:
    """What one pod may do, and all together. Measured: a message costs the agent about 20 us, a connection about 150."""

    messages_per_second: float = 5000
    burst: float = 5000
    node_messages_per_second: float = 10_000
    """All pods together: a fifth of a core."""
    node_burst: float = 10_000
    connection_cost: float = 5
    """In messages."""
    max_processes: int = 1024
    """The most processes of one pod that are connected, or watched until they end."""
    node_max_processes: int = 8192
    """All pods together. Each takes a descriptor and some 3 KiB of the agent's memory."""
    guaranteed_processes: int = 64
    """What a pod may have although the others have used up the node's number."""
    name_timeout_seconds: float = 15.0
    """How long a question waits for the pod's status, in which kubelet reports a container within a few seconds, or for the
    memory of a process of its container that is ending."""


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
