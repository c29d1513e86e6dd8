"""Tokens: what can be taken at once, how they refill, and what is owed."""

from __future__ import annotations

from vrampack.agent.limits.preload.rate_limit import RateLimiter


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_full_bucket_is_available_at_once_and_then_refills_over_time() -> None:
    clock = Clock()
    buckets = RateLimiter(per_second=8, capacity=4, clock=clock)
    assert [buckets.take_tokens("a") for _ in range(5)] == [0, 0, 0, 0, 0.125]
    assert buckets.take_tokens("b") == 0  # each caller has its own
    clock.now += 0.375  # 3 tokens: one is owed, two are there
    assert [buckets.take_tokens("a") for _ in range(3)] == [0, 0, 0.125]


def test_debt_is_limited_to_one_full_bucket() -> None:
    buckets = RateLimiter(per_second=8, capacity=4, clock=Clock())
    assert max(buckets.take_tokens("a", 3) for _ in range(100)) == 0.5


def test_refill_stops_at_capacity_and_debt_outlives_the_last_connection() -> None:
    clock = Clock()
    buckets = RateLimiter(per_second=8, capacity=4, clock=clock)
    buckets.take_tokens("a", 5)
    buckets.forget_key("a")
    assert buckets.take_tokens("a") == 0.25
    clock.now += 1000
    buckets.forget_key("a")
    assert buckets._buckets == {}
    assert [buckets.take_tokens("a") for _ in range(5)][-1] == 0.125
