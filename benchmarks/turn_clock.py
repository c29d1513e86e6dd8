"""Measures how long the event loop of another process is held: the CPU time of each of its turns, in nanoseconds.

A long turn delays every call that arrives meanwhile. A small preloaded library (`turn_clock.c`) wraps the call in which the
process waits, so it sees each turn of the shipped loop, without changing the process. It counts the CPU time of the loop's
thread, so neither a busy machine nor another thread of the process makes a turn longer; garbage collection does.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
CAPACITY = 65_536
"""The most turns of half a millisecond and more; they take one megabyte of the process's memory."""
SHORTEST_SECONDS = 0.0005
_TURN = struct.Struct("QQ")
_COUNT = struct.Struct("Q")


@dataclass(frozen=True, slots=True)
class LoopTurn:
    """One turn of a loop."""

    began: float
    """When it began, by `time.monotonic`."""
    cpu_seconds: float


class TurnClock:
    """Keeps its files in `folder`. Start the process with `environment`, and read its turns after it has ended."""

    def __init__(self, folder: Path) -> None:
        library, self._file = folder / "turn_clock.so", folder / "turns"
        flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
        subprocess.run(["gcc", *flags, "-o", str(library), str(SOURCE), "-ldl"], check=True, timeout=100)  # noqa: S603, S607 - fixed arguments, and gcc from PATH
        with self._file.open("wb") as file:
            file.truncate(_COUNT.size + CAPACITY * _TURN.size)
        self.environment: Mapping[str, str] = {"LD_PRELOAD": str(library), "TURN_CLOCK_FILE": str(self._file)}

    def read_turns(self) -> list[LoopTurn]:
        """All turns of half a millisecond and more, in order."""
        record = self._file.read_bytes()
        (count,) = _COUNT.unpack_from(record)
        if count > CAPACITY:
            raise RuntimeError(f"{count} turns of half a millisecond and more: the file has {CAPACITY}")
        return [
            LoopTurn(began / 1e9, cost / 1e9)
            for began, cost in _TURN.iter_unpack(record[_COUNT.size : _COUNT.size + count * _TURN.size])
        ]


def find_longest_ms(turns: list[LoopTurn], began: float, ended: float) -> float:
    """The longest turn that began between two moments; half a millisecond if none took that long."""
    found = [turn.cpu_seconds for turn in turns if began <= turn.began <= ended]
    return 1000 * max(found, default=SHORTEST_SECONDS)
