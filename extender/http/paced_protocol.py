"""Back pressure: a connection is parsed no faster than its caller takes answers and its requests are served.

uvicorn parses all that it reads and queues what is behind an unanswered request; it reads on after each answer, so a caller
that sends short requests without end fills the queue without end. Here what was read is parsed in pieces: not while an answer
waits to be taken, not while a parsed request waits for its turn, and not on after an answer in the same turn of the loop.
Meanwhile nothing more is read: the caller's own sending stops.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.flow_control import FlowControl

from extender.http.server import DeadlineProtocol

PIECE_BYTES = 4096
"""The most that is parsed before it is asked again whether to go on: at most 230 of the shortest requests, 3 ms."""


class PacedProtocol(DeadlineProtocol):
    """One connection."""

    _unparsed = b""
    """Read, and waiting to be parsed."""
    _has_answered = False
    """Set while a request is answered during parsing: what is behind it waits for the next turn of the loop."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = self._pace = PacedFlowControl(transport, self)

    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        self.parse_pieces()

    def pause_writing(self) -> None:
        """Answers wait to be taken, more than the transport's high-water mark."""
        super().pause_writing()
        self.flow.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.flow.resume_reading()

    def parse_pieces(self) -> None:
        """Go on with what was read; with nothing left, read on."""
        while self._unparsed and not self.flow.read_paused and not self.transport.is_closing():
            size = self._count_awaited_bytes() or PIECE_BYTES
            piece, self._unparsed = self._unparsed[:size], self._unparsed[size:]
            self._has_answered = False
            super().data_received(piece)
            if self._has_answered and self._unparsed:
                self.flow.pause_reading()
                self.flow.resume_reading()
                return
        if not self._unparsed and not self.flow.read_paused:
            self._pace.resume_transport()

    def _count_awaited_bytes(self) -> int:
        """How much is sure to be of the request that is arriving; 0 where that is not known."""
        return 0


class PacedFlowControl(FlowControl):
    """When a connection may be read and parsed. uvicorn asks to go on whenever it has served a request."""

    def __init__(self, transport: asyncio.Transport, protocol: PacedProtocol) -> None:
        super().__init__(transport)
        self._protocol = protocol
        self._is_transport_paused = False

    def pause_reading(self) -> None:
        self.read_paused = True
        if not self._is_transport_paused and not self._transport.is_closing():
            self._is_transport_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """In the next turn, unless there is still a reason to wait; what ends that asks again."""
        if self.read_paused and not self.write_paused and not self._protocol.pipeline:
            self.read_paused = False
            self._protocol.loop.call_soon(self._protocol.parse_pieces)

    def resume_transport(self) -> None:
        """All that was read is parsed."""
        if self._is_transport_paused and not self._transport.is_closing():
            self._is_transport_paused = False
            self._transport.resume_reading()
