"""Calls that may block, where they are cancelled."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.support.polling import wait_until
from vrampack.agent.nvml.timed_calls import TimedCalls

KIND = "a call"


@pytest.mark.parametrize("turns", range(5))
async def test_a_call_answered_during_its_cancellation_is_cancelled(turns: int) -> None:
    """Cancelled so many turns of the loop after the answer. If a cancellation were dropped, a stopping agent would never end."""
    calls, allowed = TimedCalls(timeout_seconds=10), threading.Event()
    call = asyncio.create_task(calls.run_call(KIND, allowed.wait))
    await asyncio.sleep(0)
    allowed.set()
    wait_until(lambda: not any(each.name == f"nvml {KIND}" for each in threading.enumerate()), what="the thread's end")
    for _ in range(turns):
        await asyncio.sleep(0)
    was_done = call.done()
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled() != was_done
