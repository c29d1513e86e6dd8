"""The pods of a burst are created while others are scheduled, and the scheduler never runs out of them."""

from __future__ import annotations

import pytest

from benchmarks.scheduler_rate import PODS_IN_BURST, count_first_pods, is_creation_due


@pytest.mark.parametrize("count", [4, 5, 7, PODS_IN_BURST])
def test_a_pod_waits_until_the_last_is_bound(count: int) -> None:
    first = created = count_first_pods(count)
    for bound in range(count):
        created += sum(is_creation_due(number - first, bound) for number in range(created, count))
        assert bound < created
    assert first < created == count
