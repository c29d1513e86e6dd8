"""How slow this machine is at the moment, beside a fixed reference.

A fixed piece of Python and a fixed number of loopback writes are timed on the wall clock before and after each group, so a
slower processor counts, and so do other programs that were busy meanwhile.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from benchmarks.benchmark_row import BenchmarkRow

REFERENCE_SECONDS = {"python": 0.0186, "writes": 0.0174}
"""Measured, the best of 60 rounds each, on a virtual machine of two cores that was busy otherwise. It is not the machine on which
the table of docs/benchmarks.md was measured, which was not calibrated."""
ROUNDS = 15
STEPS, WRITES = 150_000, 2_000
MESSAGE = b"x" * 200
TIMES, RATES = ("us", "ms", "s"), ("pods/s",)


def measure_slowness() -> float:
    """1 where the work takes as long as in the reference, 2 where it takes twice as long."""
    python = median(_time(_count) for _ in range(ROUNDS))
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        theirs, _ = listener.accept()
        with theirs:
            writes = median(_time(lambda: _write(ours, theirs)) for _ in range(ROUNDS))
    return (python / REFERENCE_SECONDS["python"] + writes / REFERENCE_SECONDS["writes"]) / 2


def scale_row(row: BenchmarkRow, slowness: float) -> BenchmarkRow:
    """Goal and floor of a time or a rate as they are on this machine. A faster machine changes nothing."""
    if row.unit in TIMES:
        factor = max(slowness, 1.0)
    elif row.unit in RATES:
        factor = 1 / max(slowness, 1.0)
    else:
        return row
    goal, floor = (None if bound is None else bound * factor for bound in (row.goal, row.floor))
    return replace(row, goal=goal, floor=floor)


def _time(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _count() -> None:
    found: dict[int, int] = {}
    for number in range(STEPS):
        found[number % 1000] = found.get(number % 1000, 0) + number


def _write(ours: socket.socket, theirs: socket.socket) -> None:
    for _ in range(WRITES):
        ours.sendall(MESSAGE)
        theirs.recv(len(MESSAGE))
