"""Listeners: uvicorn with the deadlines and the connection limits that it lacks.

A scheduler keeps idle connections for 90 s and loses a request if the server closes them first, so ours stay open
longer; but a request that has begun must arrive whole within a deadline, and a crowd of connections locks no client
out (`vrampack/http/open_connections.py`).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import ClassVar

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from vrampack.config.addresses import parse_address
from vrampack.http.open_connections import ConnectionLimits, OpenConnections

CALLED_BY_SCHEDULERS = ConnectionLimits(total=512, per_peer=512, keep_alive_seconds=120)
"""A scheduler needs two connections and one per bind under way, and its Go client closes an idle one after 90 s."""
CALLED_BY_PROBES = ConnectionLimits(total=64, per_peer=16, keep_alive_seconds=15)
"""Kubelet opens a new connection for each probe, and so does a scraper that comes less often than this."""
MAX_HEAD_BYTES = 65_536
"""For request line and headers; the parser has no limit of its own. A scheduler sends 200 bytes."""
_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


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


def open_listener(address: str) -> socket.socket:
    """A listening socket, so that a port in use is an error before anything starts. Raises `OSError`."""
    host, port = parse_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen on {address}: {error.strerror}") from error
    listener.listen(2048)
    listener.setblocking(False)  # noqa: FBT003 - the socket's own signature
    return listener


def build_server(
    app: ASGIApp,
    *,
    tls: ssl.SSLContext | None,
    receive_seconds: float,
    limits: ConnectionLimits = CALLED_BY_SCHEDULERS,
    protocol: type[DeadlineProtocol] | None = None,
) -> DeadlineServer:
    """A server for `app`; it gets its socket when it starts to serve."""

    class Protocol(protocol or DeadlineProtocol):  # type: ignore[misc]  # the base is chosen by the caller
        receive_deadline_seconds = receive_seconds
        open_connections = OpenConnections(limits)

    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        # Its start and stop lines say nothing that ours do not, and two listeners would log each of them twice.
        log_level=max(logging.WARNING, logging.getLogger().level),
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=limits.keep_alive_seconds,
        timeout_graceful_shutdown=1,
        ssl_context_factory=None if tls is None else lambda *_: tls,
    )
    server = DeadlineServer(config)
    server.handshake_seconds = receive_seconds
    return server


class DeadlineProtocol(HttpToolsProtocol):
    """Cuts connections that do not finish a request in time, send endless headers, or are no longer needed.

    An idle connection between requests stays open for as long as the limits say.
    """

    receive_deadline_seconds = 10.0
    open_connections: ClassVar[OpenConnections]
    """All connections of this listener; `build_server` sets it."""
    peer = ""
    _deadline: asyncio.TimerHandle | None = None
    _is_receiving = False
    _is_in_head = False
    _head_bytes = 0

    @property
    def is_answering(self) -> bool:
        """Whether a whole request waits for its answer, and the client still reads."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or self.flow.write_paused:
            return False
        # uvicorn makes a cycle after the last header: it may still be that of the request that is arriving.
        return bool(self.pipeline) or self._is_in_head or not self._is_receiving

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = self.client[0] if self.client else ""
        self._start_deadline()
        self.open_connections.add_connection(self)

    def data_received(self, data: bytes) -> None:
        if self._deadline is None and not self._is_receiving:
            self._start_deadline()
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.transport.write(_HEAD_TOO_LARGE)
                self.transport.close()

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
        self._is_receiving = False
        self._cancel_deadline()
        super().on_message_complete()

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
