"""An HTTP listener with bounded cost: a fixed number of connections, one small request on each, and a deadline for every step.

Any pod that reaches the agent's port may open endless connections and send endless requests. The same process decides whether
containers start, and each decision needs a file descriptor and a turn of the event loop. So the listener accepts one connection in
each turn. A connection carries one request; its head has a maximum size and a deadline, and so has its answer. When there are too
many connections, a new one closes the oldest: a probe is always the newest.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

import httptools

from vrampack.http.open_connections import ConnectionLimits, OpenConnections

log = logging.getLogger(__name__)

STATUS_CONNECTIONS = ConnectionLimits(total=64, per_peer=16, keep_alive_seconds=0)
"""Kubelet and each scraper open one at a time; 64 connections, each with TLS and a full buffer, cost 10 MB."""
MAX_HEAD_BYTES = 16_384
"""A service account's token is 1 KB."""
HEAD_SECONDS = 5.0
"""From the connection to the last byte of the head, handshake included; kubelet's probes give up after the same time."""
ANSWER_SECONDS = 10.0
"""To find the answer and send it: Prometheus waits this long by default."""
ACCEPT_PAUSE_SECONDS = 0.2
"""The pause after a failed accept: without a descriptor it would fail again at once, in every turn of the loop."""


@dataclass(slots=True)
class StatusRequest:
    """The head of a request. The parser fills it by calling these methods by name."""

    target: bytes = b""
    headers: dict[bytes, bytes] = field(default_factory=dict)
    method: bytes = b""
    peer: str = ""
    """The caller's address; empty on a unix socket."""

    @property
    def path(self) -> str:
        return self.target.partition(b"?")[0].decode("latin-1")

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value


@dataclass(frozen=True, slots=True)
class StatusAnswer:
    """The answer to a request."""

    status: HTTPStatus
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"

    def encode(self, *, has_body: bool) -> bytes:
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\nContent-Type: {self.content_type}\r\n"
            f"Content-Length: {len(self.body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (self.body if has_body else b"")


AnswerRequest = Callable[[StatusRequest], Awaitable[StatusAnswer]]


def explain_status(status: HTTPStatus, text: str = "") -> StatusAnswer:
    return StatusAnswer(status, f"{text or status.phrase}\n".encode())


class BoundedServer:
    """Serves one listening socket, which the caller closes once `run` has ended."""

    def __init__(
        self,
        listener: socket.socket,
        answer: AnswerRequest,
        *,
        tls: ssl.SSLContext | None = None,
        limits: ConnectionLimits = STATUS_CONNECTIONS,
    ) -> None:
        self._listener = listener
        self._listener.setblocking(False)  # noqa: FBT003 - the socket's own signature
        self._answer = answer
        self._tls = tls
        self._open_connections = OpenConnections(limits)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Accept, until cancelled; then every connection is cut."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    connected, address = await loop.sock_accept(self._listener)
                except OSError as error:
                    log.warning("connection not accepted error=%s", error)
                    await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
                    continue
                self._serve_connection(connected, address[0] if isinstance(address, tuple) else "")
                await asyncio.sleep(0)  # accept may not have waited: let other tasks run first
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _serve_connection(self, connected: socket.socket, peer: str) -> None:
        connection = _Connection(peer, connected)
        connection.task = task = asyncio.create_task(self._answer_connection(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that is cancelled before its first step does not run its own clean-up.
        task.add_done_callback(lambda _: self._forget_connection(connection))
        self._open_connections.add_connection(connection)

    def _forget_connection(self, connection: _Connection) -> None:
        self._open_connections.remove_connection(connection)
        connection.cut()

    async def _answer_connection(self, connection: _Connection) -> None:
        try:
            await self._exchange(connection)
        except (TimeoutError, OSError, EOFError):
            log.debug("connection cut peer=%s", connection.peer)
        except Exception:
            log.exception("request not answered peer=%s", connection.peer)
        finally:
            connection.cut()

    async def _exchange(self, connection: _Connection) -> None:
        async with asyncio.timeout(HEAD_SECONDS):
            reader = await connection.open_streams(self._tls)
            request = await _read_request(reader)
        async with asyncio.timeout(ANSWER_SECONDS):
            if isinstance(request, StatusRequest):
                request.peer = connection.peer
            connection.is_answering = True
            answer = await self._find_answer(request)
            # From here on it may be closed to make room, as only the caller can be slow now.
            connection.is_answering = False
            has_body = not isinstance(request, StatusRequest) or request.method != b"HEAD"
            await connection.send_last(answer.encode(has_body=has_body))

    async def _find_answer(self, request: StatusRequest | StatusAnswer) -> StatusAnswer:
        if isinstance(request, StatusAnswer):
            return request
        if request.method not in (b"GET", b"HEAD"):
            return explain_status(HTTPStatus.METHOD_NOT_ALLOWED)
        if request.headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in request.headers:
            return explain_status(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        return await self._answer(request)


class _Connection:
    """One accepted socket, with or without a transport yet."""

    def __init__(self, peer: str, connected: socket.socket) -> None:
        self.peer = peer
        self.is_answering = False
        self.task: asyncio.Task[None] | None = None
        self._connected = connected
        self._is_handed_over = False
        """Whether the event loop owns the socket, which it closes if it cannot create a transport."""
        self._transport: asyncio.Transport | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open_streams(self, tls: ssl.SSLContext | None) -> asyncio.StreamReader:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MAX_HEAD_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        self._is_handed_over = True
        self._transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            self._connected,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else HEAD_SECONDS,
        )
        self._writer = asyncio.StreamWriter(self._transport, protocol, reader, loop)
        return reader

    async def send_last(self, text: bytes) -> None:
        """Send the text, wait until the peer has received it, and close."""
        if self._writer is not None:
            self._writer.write(text)
            self._writer.close()
            await self._writer.wait_closed()

    def close_for_room(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def cut(self) -> None:
        """Close without waiting for the peer. Does nothing after `send_last`."""
        if self._transport is not None:
            self._transport.abort()
        elif not self._is_handed_over:
            self._connected.close()


async def _read_request(reader: asyncio.StreamReader) -> StatusRequest | StatusAnswer:
    """The request, or the answer to a head that is too large or malformed. Raises `EOFError` when the caller disconnects early."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return explain_status(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    request = StatusRequest()
    parser = httptools.HttpRequestParser(request)
    try:
        # Headers may ask for an upgrade; what follows the head is not read.
        with suppress(httptools.HttpParserUpgrade):
            parser.feed_data(head)
        request.method = parser.get_method()
    except httptools.HttpParserError:
        return explain_status(HTTPStatus.BAD_REQUEST)
    return request
