"""A turn of a loop is as long as the CPU time between two waits, and waiting does not make it longer."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.turn_clock import SHORTEST_SECONDS, LoopTurn, TurnClock, find_longest_ms

PROGRAM = """
import asyncio, threading, time
import uvloop

def work(seconds):
    ended = time.thread_time() + seconds
    while time.thread_time() < ended:
        pass

async def main():
    for seconds in (0.02, 0, 0.01):
        await asyncio.sleep(0.001)
        work(seconds / 2)
        threading.Event().wait(0.05)
        work(seconds / 2)

uvloop.run(main())
"""


@pytest.mark.shim  # a compiler is needed
def test_turns_of_a_loop_count_cpu_time_only(tmp_path: Path) -> None:
    """Turns of 20, 0 and 10 ms of CPU time, each with an idle wait of 50 ms in it."""
    clock = TurnClock(tmp_path)
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, **clock.environment}, check=True)
    turns = clock.read_turns()
    long = [turn.cpu_seconds for turn in turns if turn.cpu_seconds >= 0.009]
    assert len(long) == 2
    assert 0.02 <= long[0] < 0.05
    assert 0.01 <= long[1] < 0.02
    assert all(began <= turn.began <= time.monotonic() for turn in turns)


def test_the_longest_turn_is_one_that_began_in_the_interval() -> None:
    turns = [LoopTurn(1.0, 0.009), LoopTurn(2.0, 0.003), LoopTurn(3.0, 0.004), LoopTurn(4.1, 0.008)]
    assert find_longest_ms(turns, 2.0, 4.0) == 4.0
    assert find_longest_ms(turns, 3.5, 4.0) == 1000 * SHORTEST_SECONDS
