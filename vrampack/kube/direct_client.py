"""Sends Bindings and watches without aiohttp, which takes several times as much CPU for each.

Nothing is sent twice: a request that fails is left to the caller. Bindings share a pool of connections. A watch has a
connection of its own, so it never uses one that the server is about to close. Proxies are not supported.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import aiohappyeyeballs
import msgspec

from vrampack.kube.aio_client import Configuration
from vrampack.kube.http_client import CONNECT_TIMEOUT_SECONDS
from vrampack.kube.http_connection import HttpConnection, StreamedReply

IDLE_SECONDS = 15.0
"""How long a connection is kept without a request: far shorter than servers and load balancers keep it, so that a Binding
is seldom sent on one that is being closed. aiohttp's figure."""
NEXT_ADDRESS_SECONDS = 0.25
"""After this the next address of the server is tried at the same time (RFC 8305)."""
CLOSING_SECONDS = 1.0
"""Aborted connections are closed in the next turn of the loop."""
PORTS = {"https": 443, "http": 80}


class DirectClient:
    """A client of one server. Nothing is connected before the first request."""

    def __init__(self, configuration: Configuration, tls: ssl.SSLContext) -> None:
        """Raises `ValueError` for an invalid address."""
        url = urlsplit(configuration.host)
        if url.scheme not in PORTS or not url.hostname:
            raise ValueError(f"not the address of a server: {configuration.host}")
        self._address = (url.hostname, url.port or PORTS[url.scheme])
        self._tls = tls if url.scheme == "https" else None
        self._server_name: str = configuration.tls_server_name or url.hostname
        self._path = url.path.rstrip("/")
        self._host_line = f"Host: {url.netloc.rpartition('@')[2]}"
        self._places = asyncio.Semaphore(configuration.connection_pool_maxsize)
        self._idle: deque[HttpConnection] = deque()
        """The most recently used one is at the end."""
        self._open: set[HttpConnection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Mapping[str, object] | None,
        *,
        silence_seconds: float | None,
    ) -> StreamedReply:
        message = self._encode(method, target, headers, body)
        connection = await (self._get_shared() if silence_seconds is None else self._connect(HttpConnection.abort))
        reply = connection.send(message, silence_seconds=silence_seconds)
        try:
            await reply.wait_for_status()
        except BaseException:  # of a cancelled call too: its answer may still arrive, so the connection is closed
            reply.close()
            raise
        return reply

    async def close(self) -> None:
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in self._open:
            connection.abort()
        if self._open:
            await asyncio.wait([each.closed for each in self._open], timeout=CLOSING_SECONDS)

    def _encode(self, method: str, target: str, headers: Mapping[str, str], body: Mapping[str, object] | None) -> bytes:
        content = b"" if body is None else msgspec.json.encode(body)
        lines = [f"{method} {self._path}{target} HTTP/1.1", self._host_line, "Accept-Encoding: identity"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None:
            lines.append(f"Content-Length: {len(content)}")
        head = "\r\n".join(lines)
        if len(head.splitlines()) != len(lines):
            raise ValueError("a header contains a line break")
        return b"%b\r\n\r\n%b" % (head.encode(), content)

    async def _get_shared(self) -> HttpConnection:
        """An idle one or a new one. Waits while all places are taken."""
        await self._places.acquire()
        try:
            return self._take_idle() or await self._connect(self._keep)
        except BaseException:  # a cancellation too
            self._places.release()
            raise

    def _take_idle(self) -> HttpConnection | None:
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.idle_since > oldest:
                return connection
            connection.abort()
        return None

    async def _connect(self, on_free: Callable[[HttpConnection], None]) -> HttpConnection:
        loop = asyncio.get_running_loop()
        host, port = self._address
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                link = await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS)
                _, connection = await loop.create_connection(
                    lambda: HttpConnection(on_free),
                    sock=link,
                    ssl=self._tls,
                    server_hostname=self._server_name if self._tls else None,
                )
        except TimeoutError as error:
            raise TimeoutError(f"no connection to {host}:{port} within {CONNECT_TIMEOUT_SECONDS:g} s") from error
        if self._is_closed:
            connection.abort()
            raise ConnectionError("the client is closed")
        self._open.add(connection)
        connection.closed.add_done_callback(lambda _: self._open.discard(connection))
        return connection

    def _keep(self, connection: HttpConnection) -> None:
        """Its request is over."""
        self._places.release()
        if not connection.is_open:
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(IDLE_SECONDS, self._close_idle)

    def _close_idle(self) -> None:
        """Close those that have been idle for too long, and check again while there are any."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - IDLE_SECONDS
        while self._idle and self._idle[0].idle_since <= oldest:
            self._idle.popleft().abort()
        self._sweep = loop.call_later(IDLE_SECONDS, self._close_idle) if self._idle else None
