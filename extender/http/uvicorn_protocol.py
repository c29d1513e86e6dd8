"""Connections and server on uvicorn: all that we use of its private side is in this file, and `test_uvicorn_protocol.py` names it.

Deadlines: a request that has begun must arrive whole in time, and an endless head ends the connection. An idle connection between
requests stays open for as long as the limits say.

Back pressure: a connection is parsed no faster than its requests are served and its caller reads the answers. uvicorn parses
everything that it reads and queues requests behind an unanswered one; it reads on after each answer, so a caller that sends short
requests without end fills the queue without end. Here the bytes that were read are parsed in pieces. Parsing stops while the
caller has an answer left to read, while a parsed request waits for its turn, and after an answer until the next turn of the loop.
Meanwhile nothing more is read, so the caller's sending stalls.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import ClassVar

import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from vrampack.http.open_connections import OpenConnections

MAX_HEAD_BYTES = 65_536
"""For request line and headers; the parser has no limit of its own. A scheduler sends 200 bytes."""
PIECE_BYTES = 4096
"""The most bytes parsed before checking again whether to go on: at most 230 of the shortest requests, 3 ms."""
_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_UNUSUAL_HEADERS = frozenset({b"expect", b"upgrade"})


class DeadlineServer(uvicorn.Server):
    """One listener. It leaves signals to the application."""

    handshake_seconds = 10.0
    """A TLS handshake from its first byte to its last; asyncio would wait for 60 s."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on sockets that exist already. uvicorn's own method sets no deadline for handshakes."""
        loop, config = asyncio.get_running_loop(), self.config
        deadline = self.handshake_seconds if config.ssl else None
        self.servers = [
            await loop.create_server(
                self._protocol, sock=each, ssl=config.ssl, ssl_handshake_timeout=deadline, backlog=config.backlog
            )
            for each in sockets or ()
        ]
        self.started = True

    def _protocol(self) -> asyncio.Protocol:
        protocol: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return protocol(config=self.config, server_state=self.server_state, app_state={})


class PacedProtocol(HttpToolsProtocol):
    """One connection. It is cut when a request does not arrive in time, its head is endless, or its place is needed."""

    receive_deadline_seconds = 10.0
    open_connections: ClassVar[OpenConnections]
    """All connections of this listener; `build_server` sets it."""
    peer = ""
    _deadline: asyncio.TimerHandle | None = None
    _is_receiving = False
    _is_in_head = False
    _head_bytes = 0
    _unparsed = b""
    """Bytes read that wait to be parsed."""
    _has_answered = False
    """Set while a request is answered during parsing: the bytes behind it wait for the next turn of the loop."""

    @property
    def is_answering(self) -> bool:
        """Whether a whole request waits for its answer, and the client still reads."""
        if not self.is_unanswered or self.flow.write_paused:
            return False
        # uvicorn makes a cycle after the last header: it may still be that of the request that is arriving.
        return bool(self.pipeline) or self._is_in_head or not self._is_receiving

    @property
    def is_unanswered(self) -> bool:
        """Whether the last request that a route or `answer_later` serves waits for its answer."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    @property
    def is_deciding(self) -> bool:
        """Whether that is one of `answer_later`."""
        return self.is_unanswered and isinstance(self.cycle, PendingCycle)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = self._pace = PacedFlowControl(transport, self)
        self.peer = self.client[0] if self.client else ""
        self._start_deadline()
        self.open_connections.add_connection(self)

    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        self.parse_pieces()

    def parse_pieces(self) -> None:
        """Go on parsing the bytes that were read; when none are left, resume reading."""
        while self._unparsed and not self.flow.read_paused and not self.transport.is_closing():
            size = self._count_awaited_bytes() or PIECE_BYTES
            piece, self._unparsed = self._unparsed[:size], self._unparsed[size:]
            self._has_answered = False
            self._parse_piece(piece)
            if self._has_answered and self._unparsed:
                self.flow.pause_reading()
                self.flow.resume_reading()
                return
        if not self._unparsed and not self.flow.read_paused:
            self._pace.resume_transport()

    def on_message_begin(self) -> None:
        self._is_receiving = self._is_in_head = True
        self._head_bytes = 0
        if self._deadline is None:
            self._start_deadline()
        self.open_connections.note_request(self)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()
        if self.parser.should_upgrade():  # a CONNECT, too: the parser reads nothing more of this connection
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        self.end_arrival()
        super().on_message_complete()

    def end_arrival(self) -> None:
        """The whole request is there."""
        self._is_receiving = False
        self._cancel_deadline()

    def find_plain_length(self, max_bytes: int) -> int | None:
        """The length that a usual call announces, 0 if it announces none; None for an unusual request."""
        length = 0
        for name, value in self.headers:
            if name in _UNUSUAL_HEADERS:
                return None
            if name == b"content-length":
                length = int(value)
        limit = self.limit_concurrency
        is_plain = (
            self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and length <= max_bytes
            and not self.is_unanswered
            and (limit is None or len(self.connections) < limit)
        )
        return length if is_plain else None

    def answer_later(self, answer: Callable[[PendingCycle], Coroutine[None, None, None]]) -> None:
        """Run a task that answers the request. A request behind it is queued, as behind any other."""
        self.cycle = pending = PendingCycle()  # type: ignore[assignment]  # what uvicorn looks at, it has
        task = self.loop.create_task(answer(pending))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def write_answer(self, head_lines: list[bytes], body: bytes) -> None:
        """Write at once, with one system call and without copying the body. The first line is that of the status."""
        self._has_answered = True
        status, *others = head_lines
        lines = [status, *(b"%b: %b\r\n" % header for header in self.server_state.default_headers), *others]
        self.transport.writelines((b"".join(lines), body))

    def finish_answer(self, *, is_last: bool) -> None:
        if is_last:
            self.server_state.total_requests += 1
            self.transport.close()
        else:
            self.on_response_complete()

    def pause_writing(self) -> None:
        """The unread answers exceed the transport's high-water mark."""
        super().pause_writing()
        self.flow.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.flow.resume_reading()

    def eof_received(self) -> bool:  # type: ignore[override] # uvicorn's returns None, which closes
        """The caller sends nothing more, but may still read, as socat and some proxies do: answer first, then close.

        Returns whether the connection stays open for that. TLS cannot be closed on one side only.
        """
        if not self.is_answering or self.scheme == "https":
            return False
        self.cycle.keep_alive = False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self.open_connections.remove_connection(self)
        super().connection_lost(exc)

    def close_for_room(self) -> None:
        """Cut the connection without waiting for a peer that may never read what it was sent."""
        self.transport.abort()

    def timeout_keep_alive_handler(self) -> None:
        """The connection was idle for too long: cut it. A close would wait until the peer has read its last answer."""
        self.transport.abort()

    def _count_awaited_bytes(self) -> int:
        """How many further bytes certainly belong to the request that is arriving; 0 when that is not known."""
        return 0

    def _parse_piece(self, piece: bytes) -> None:
        if self._deadline is None and not self._is_receiving:
            self._start_deadline()
        super().data_received(piece)
        if self._is_in_head:
            self._head_bytes += len(piece)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.transport.write(_HEAD_TOO_LARGE)
                self.transport.close()

    def _start_deadline(self) -> None:
        self._deadline = self.loop.call_later(self.receive_deadline_seconds, self._abort_slow_request)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _abort_slow_request(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.abort()


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


class PendingCycle:
    """A placeholder for the request that uvicorn thinks it serves, while one of our verbs is decided."""

    response_complete = False
    disconnected = False
    keep_alive = True

    def __init__(self) -> None:
        self.message_event = asyncio.Event()
