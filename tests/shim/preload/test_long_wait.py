"""Two minutes without an agent, and not one second less: then a program is refused, and does not wait a second time."""

from __future__ import annotations

import time

import pytest

from tests.shim.preload.long_wait import LongWait
from tests.support.limit_cases import REFUSED

PATIENCE_SECONDS = 120


@pytest.mark.timeout(150)
def test_an_unanswered_allocation_is_refused_after_two_minutes(long_wait: LongWait) -> None:
    """A program that holds memory gets CUDA's own error; one that never met an agent cannot start. Neither waits again."""
    if long_wait.holder.process.poll() is not None or long_wait.newcomer.process.poll() is not None:
        assert time.monotonic() - long_wait.since >= PATIENCE_SECONDS, "somebody did not wait"
    ended = long_wait.newcomer.wait_for_end(timeout=135)
    assert ended.code != 0
    assert ended.err.startswith("vrampack: no agent answers at /var/lib/vrampack/preload/agent.sock: ")
    said = long_wait.holder.wait_for_end(timeout=10)
    assert time.monotonic() - long_wait.since >= PATIENCE_SECONDS
    assert said.lines == [REFUSED, REFUSED, "freed: 0", "allocated 3000 MiB"]
    assert (said.code, said.err) == (0, "")
