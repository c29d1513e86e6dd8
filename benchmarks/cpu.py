"""CPU time of processes, and of everything else on the machine: a figure from a machine that others use says less."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
IDLE_FIELDS = (3, 4)
"""Of the first line of /proc/stat: idle, and waiting for disks."""
FIELDS = 8
"""user to steal; what follows is counted in user already."""


@dataclass(frozen=True, slots=True)
class Used:
    """What was used between two moments."""

    wall_seconds: float
    seconds: Mapping[str, float]
    """Of each process by name."""
    other_seconds: float
    """Of everybody else, this process left out."""

    @property
    def other_cores(self) -> float:
        return self.other_seconds / self.wall_seconds


class Meter:
    """Counts from when it is made. `pids` are all processes that belong to what is measured, by name."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._began = _Sample.now(self._pids)

    def read(self) -> Used:
        began, now = self._began, _Sample.now(self._pids)
        seconds = {name: now.seconds[name] - began.seconds[name] for name in self._pids}
        ours = sum(seconds.values()) + now.own_seconds - began.own_seconds
        other = now.machine_seconds - began.machine_seconds - ours
        return Used(now.wall - began.wall, seconds, max(0.0, other))


@dataclass(frozen=True, slots=True)
class _Sample:
    wall: float
    own_seconds: float
    machine_seconds: float
    seconds: dict[str, float]

    @classmethod
    def now(cls, pids: Mapping[str, int]) -> Self:
        seconds = {name: _process_seconds(pid) for name, pid in pids.items()}
        return cls(time.monotonic(), time.process_time(), _machine_seconds(), seconds)


def _process_seconds(pid: int) -> float:
    """All its threads, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def _machine_seconds() -> float:
    fields = Path("/proc/stat").read_text().partition("\n")[0].split()[1 : FIELDS + 1]
    return sum(int(ticks) for place, ticks in enumerate(fields) if place not in IDLE_FIELDS) / TICKS_PER_SECOND
