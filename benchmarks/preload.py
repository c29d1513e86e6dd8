"""What the library of shim/preload adds to a call that it passes on.

Busy CUDA programs make thousands of ioctl calls a second, and nearly all of them do not concern the library. One process calls
both the name `ioctl`, which resolves to the library, and libc's own function, in alternating batches, so that the figure is a
difference of neighbours. The calls go to /dev/null, where they are as cheap as possible. It does not tell what a watched call
costs (the agent is asked then), nor what a container's other seccomp rules add.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.options import BenchmarkOptions

PRELOAD_FOLDER = Path(__file__).parents[1] / "shim" / "preload"
PROGRAM_SOURCE = Path(__file__).with_suffix(".c")
BATCHES = 401
CALLS = 5000
COMMAND = "python -m benchmarks preload"
GOAL_NS, FLOOR_NS = 20, 30


def measure_rows(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """Measure an ioctl whose number is not watched, and a control, as most calls of CUDA are."""
    pairs = _measure_pairs(options.scale_count(BATCHES, 5), options.scale_count(CALLS, 10))
    for key, what, column in (("preload-ioctl", "unwatched ioctl", 0), ("preload-control", "passed control", 2)):
        added = sorted(pair[column] - pair[column + 1] for pair in pairs)
        plain = median(pair[column + 1] for pair in pairs)
        quarter = len(added) // 4
        half = f"middle half {added[quarter]:.1f} to {added[-quarter - 1]:.1f}"
        note = f"median of {len(pairs)} pairs, {half}; the call itself takes {plain:.0f} ns"
        yield BenchmarkRow(key, f"preload, {what}, added", COMMAND, median(added), "ns", GOAL_NS, FLOOR_NS, note=note)


def _measure_pairs(batches: int, calls: int) -> list[list[float]]:
    with TemporaryDirectory() as folder:
        program = Path(folder) / "preload"
        _run_command(["gcc", "-O2", "-D_GNU_SOURCE", "-o", str(program), str(PROGRAM_SOURCE)])
        _run_command(["make", "--silent", "-C", str(PRELOAD_FOLDER), "preload", f"OUT={folder}"])
        lines = _run_command([str(program), str(batches), str(calls)], LD_PRELOAD=f"{folder}/libvrampack.so")
    return [[float(figure) for figure in line.split()] for line in lines.splitlines()]


def _run_command(command: list[str], **environment: str) -> str:
    done = subprocess.run(  # noqa: S603 - fixed arguments
        command, env={**os.environ, **environment}, check=True, stdout=subprocess.PIPE, text=True, timeout=300
    )
    return done.stdout
