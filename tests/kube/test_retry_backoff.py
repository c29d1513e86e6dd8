"""A failing server is asked ever more rarely, and a flapping one is not treated as healthy."""

from __future__ import annotations

import pytest

from vrampack.kube import retry_backoff
from vrampack.kube.errors import NoAnswerError
from vrampack.kube.retry_backoff import RetryBackoff, extend_pause


class StoppedClock:
    """In place of the module's `time`."""

    def __init__(self) -> None:
        self.seconds = 1e6

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StoppedClock:
    stopped = StoppedClock()
    monkeypatch.setattr(retry_backoff, "time", stopped)
    return stopped


def test_the_wait_doubles_from_800_ms_to_30_s(clock: StoppedClock) -> None:
    backoff = RetryBackoff()
    for longest in (0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0):
        wait = backoff.next_seconds()
        assert longest / 2 <= wait <= longest
        clock.seconds += wait


def count_attempts(clock: StoppedClock, backoff: RetryBackoff, *, seconds: float, well_seconds: float) -> int:
    """How often a server is asked that works for `well_seconds` each time, and then fails."""
    ends, attempts = clock.seconds + seconds, 0
    while clock.seconds < ends:
        clock.seconds += well_seconds + backoff.next_seconds()
        attempts += 1
    return attempts


def test_a_server_that_flaps_for_an_hour_is_listed_a_few_hundred_times(clock: StoppedClock) -> None:
    """Waits grow to 15 to 30 s; five shorter ones come before."""
    assert 3600 / 30 <= count_attempts(clock, RetryBackoff(), seconds=3600, well_seconds=0.0) <= 3600 / 15 + 6
    assert count_attempts(clock, RetryBackoff(), seconds=3600, well_seconds=60.0) <= 3600 / 75 + 6


def test_two_minutes_without_failures_reset_the_backoff(clock: StoppedClock) -> None:
    backoff = RetryBackoff()
    for _ in range(5):
        backoff.next_seconds()
    clock.seconds += 121
    assert backoff.next_seconds() <= 0.8
    assert backoff.failures == 1


def test_a_pause_is_as_long_as_the_api_server_asked_and_those_it_sent_away_come_back_one_by_one() -> None:
    asked = NoAnswerError("503", retry_after_seconds=10)
    pauses = [extend_pause(2, asked) for _ in range(100)]
    assert min(pauses) >= 10
    assert max(pauses) <= 15
    assert max(pauses) - min(pauses) > 2
    assert extend_pause(20, asked) == 20
    assert extend_pause(2, NoAnswerError("503")) == 2
