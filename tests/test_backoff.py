"""One back-off for everything that tries again."""

from __future__ import annotations

import pytest

from vrampack.backoff import Backoff


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1), (2, 2), (4, 8), (5, 10), (5_000, 10)])
def test_the_wait_doubles_up_to_the_longest(failures: int, seconds: float) -> None:
    backoff = Backoff(first_seconds=1, longest_seconds=10)
    assert backoff.compute_seconds(failures) == seconds
    drawn = [backoff.draw_seconds(failures) for _ in range(100)]
    assert seconds / 2 <= min(drawn) < max(drawn) <= seconds
