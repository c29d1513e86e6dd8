"""CPU time of processes, and of everything else on the machine: a figure says less if others use the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
IDLE_FIELDS = (3, 4)
"""Fields in the first line of /proc/stat: idle, and waiting for disks."""
CPU_CLOCK = 2
"""Of a process: clock_getcpuclockid(3) makes the clock's number of it and the pid."""
COUNTED_FIELDS = 8
"""user to steal; the fields after them are included in user."""


def read_cpu_seconds(pid: int) -> float:
    """User and system time of all threads of a process, exact: /proc/PID/stat counts in steps of 10 ms."""
    return time.clock_gettime((~pid << 3) | CPU_CLOCK)


@dataclass(frozen=True, slots=True)
class CpuUsage:
    """The CPU time used between two moments."""

    wall_seconds: float
    seconds_by_process: Mapping[str, float]
    """The time of each process, by name."""
    other_seconds: float
    """The time of everything else, without this process."""

    @property
    def other_cores(self) -> float:
        return self.other_seconds / self.wall_seconds


class CpuMeter:
    """Counts from its creation. `pids` are the measured processes, by name."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._first_sample = _CpuSample.take_sample(self._pids)

    def read_usage(self) -> CpuUsage:
        began, now = self._first_sample, _CpuSample.take_sample(self._pids)
        seconds = {name: now.seconds_by_process[name] - began.seconds_by_process[name] for name in self._pids}
        ours = sum(seconds.values()) + now.own_seconds - began.own_seconds
        other = now.machine_seconds - began.machine_seconds - ours
        return CpuUsage(now.wall - began.wall, seconds, max(0.0, other))


@dataclass(frozen=True, slots=True)
class _CpuSample:
    wall: float
    own_seconds: float
    machine_seconds: float
    seconds_by_process: dict[str, float]

    @classmethod
    def take_sample(cls, pids: Mapping[str, int]) -> Self:
        seconds = {name: read_cpu_seconds(pid) for name, pid in pids.items()}
        return cls(time.monotonic(), time.process_time(), _read_machine_seconds(), seconds)


def _read_machine_seconds() -> float:
    fields = Path("/proc/stat").read_text().partition("\n")[0].split()[1 : COUNTED_FIELDS + 1]
    return sum(int(ticks) for place, ticks in enumerate(fields) if place not in IDLE_FIELDS) / TICKS_PER_SECOND
