"""Back pressure: a connection is parsed no faster than its requests are served and its caller reads the answers.

uvicorn parses everything that it reads and queues requests behind an unanswered one; it reads on after each answer, so a caller
that sends short requests without end fills the queue without end. Here the bytes that were read are parsed in pieces. Parsing
stops while the caller has an answer left to read, while a parsed request waits for its turn, and after an answer until the next
turn of the loop. Meanwhile nothing more is read, so the caller's sending stalls.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.flow_control import FlowControl

from extender.http.server import DeadlineProtocol

PIECE_BYTES = 4096
"""The most bytes parsed before checking again whether to go on: at most 230 of the shortest requests, 3 ms."""


class PacedProtocol(DeadlineProtocol):
    """One connection."""

    _unparsed = b""
    """Bytes read that wait to be parsed."""
    _has_answered = False
    """Set while a request is answered during parsing: the bytes behind it wait for the next turn of the loop."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = self._pace = PacedFlowControl(transport, self)

    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        self.parse_pieces()

    def pause_writing(self) -> None:
        """The unread answers exceed the transport's high-water mark."""
        super().pause_writing()
        self.flow.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.flow.resume_reading()

    def parse_pieces(self) -> None:
        """Go on parsing the bytes that were read; when none are left, resume reading."""
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
        """How many further bytes certainly belong to the request that is arriving; 0 when that is not known."""
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
        """Go on in the next turn, unless there is still a reason to wait; whatever ends that reason calls this again."""
        if self.read_paused and not self.write_paused and not self._protocol.pipeline:
            self.read_paused = False
            self._protocol.loop.call_soon(self._protocol.parse_pieces)

    def resume_transport(self) -> None:
        """Read again: everything that was read is parsed."""
        if self._is_transport_paused and not self._transport.is_closing():
            self._is_transport_paused = False
            self._transport.resume_reading()
