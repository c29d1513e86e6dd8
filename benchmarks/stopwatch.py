"""`vrampack` with a stopwatch in its listener: `python -m benchmarks.stopwatch FILE serve ...`.

The service is the shipped one; only the class of its connections is replaced, by one that records three moments of every
verb and writes them to FILE at the end:

    arrived   the event loop hands over the last piece of the request, just read
    writing   the last piece of the answer is given to the transport
    written   the transport has it: uvloop writes at once if nothing waits, so it is in the socket, or counted as unsent

`written - arrived` is the time to a written reply. On a busy machine the writer may lose its core to the very client that
it wakes, before it can record the write; `writing - arrived` does not have this error.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import extender.http.protocol
from extender.http.protocol import VerbProtocol
from vrampack.cli.main import main


@dataclass(slots=True)
class VerbTiming:
    """The moments of one call, in nanoseconds, and in how many pieces its answer was sent."""

    arrived: int = 0
    writing: int = 0
    written: int = 0
    writes: int = 0
    unsent_bytes: int = 0
    """Bytes left in the transport after the last write."""


class _TimedTransport:
    """A transport that records when something is written to it."""

    def __init__(self, inner: asyncio.Transport, connection: StopwatchProtocol) -> None:
        self._inner = inner
        self._connection = connection

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a transport has
        return getattr(self._inner, name)

    def write(self, data: bytes) -> None:
        writing = time.perf_counter_ns()
        self._inner.write(data)
        self._connection.record_write(writing, time.perf_counter_ns(), self._inner.get_write_buffer_size())

    def writelines(self, pieces: list[bytes]) -> None:
        writing = time.perf_counter_ns()
        self._inner.writelines(pieces)
        self._connection.record_write(writing, time.perf_counter_ns(), self._inner.get_write_buffer_size())


class StopwatchProtocol(VerbProtocol):
    """A connection that records when verbs arrive and when their answers leave."""

    timings: list[VerbTiming]
    """All timings of the service; `run_service` sets it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._timing: VerbTiming | None = None
        super().connection_made(_TimedTransport(transport, self))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        """Record the arrival: a call begins with its method, and its last piece counts."""
        if data.startswith((b"POST ", b"GET ")):
            self._timing = VerbTiming() if data.startswith(b"POST ") else None
        if self._timing is not None:
            self._timing.arrived = time.perf_counter_ns()
        super().data_received(data)

    def record_write(self, writing: int, written: int, unsent_bytes: int) -> None:
        """Record that a piece was written."""
        verb = self._timing
        if verb is None:
            return
        if not verb.writes:
            self.timings.append(verb)
        verb.writing, verb.written = writing - verb.arrived, written - verb.arrived
        verb.writes += 1
        verb.unsent_bytes = unsent_bytes


def run_service(arguments: list[str]) -> int:
    """Serve as `vrampack` does, then write the recorded moments to the file."""
    file, *command = arguments

    class RecordingProtocol(StopwatchProtocol):
        timings: list[VerbTiming] = []  # noqa: RUF012 - of this one service

    # The service uses the class that it finds there when it starts to listen.
    setattr(extender.http.protocol, "VerbProtocol", RecordingProtocol)  # noqa: B010 - not the type that it was
    code = main(command)
    Path(file).write_text(json.dumps([asdict(verb) for verb in RecordingProtocol.timings]))
    return code


if __name__ == "__main__":
    sys.exit(run_service(sys.argv[1:]))
