"""The turns of an event loop are timed by a library that is compiled: `make test` needs no compiler, so this is in `make e2e`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import adversarial
from benchmarks.options import BenchmarkOptions
from benchmarks.turn_clock import TurnClock
from tests.benchmarks.documented_rows import check_rows

pytestmark = pytest.mark.e2e
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


def test_the_group_yields_its_rows() -> None:
    check_rows("adversarial", list(adversarial.measure_rows(BenchmarkOptions(shrink=1000))))
