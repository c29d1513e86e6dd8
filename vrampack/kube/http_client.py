"""Sends requests to one server. Calls share a pool of connections; a watch has a connection of its own.

Nothing is sent twice, with one exception: a server may close an idle connection just as a GET is sent on it. If it is closed
before a byte of the answer, the GET is sent once more, on a new connection. Any other request that fails is left to the caller.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from functools import cached_property

import aiohappyeyeballs
import msgspec

from vrampack.kube.aio_client import Configuration
from vrampack.kube.api_request import ApiRequest
from vrampack.kube.http_connection import ClosedIdleConnectionError, HttpConnection, StreamedReply
from vrampack.kube.http_route import HttpRoute, find_route

CONNECT_TIMEOUT_SECONDS = 3.0
"""For all of it: the proxy's tunnel and the TLS handshake too."""
IDLE_SECONDS = 15.0
"""How long a connection is kept without a request: far shorter than servers and load balancers keep it, so that a Binding
is seldom sent on one that is being closed."""
NEXT_ADDRESS_SECONDS = 0.25
"""After this the next address of the server is tried at the same time (RFC 8305)."""
CLOSING_SECONDS = 1.0
"""Aborted connections are closed in the next turn of the loop."""


class HttpClient:
    """A client of one server. Nothing is connected before the first request."""

    def __init__(self, configuration: Configuration) -> None:
        """Raises `OSError` if a certificate file cannot be used."""
        self._configuration = configuration
        self._tls = _build_tls(configuration)
        self._places = asyncio.Semaphore(configuration.connection_pool_maxsize)
        self._idle: deque[HttpConnection] = deque()
        """The most recently used one is at the end."""
        self._open: set[HttpConnection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def send(self, request: ApiRequest, headers: Mapping[str, str]) -> StreamedReply:
        """The answer as soon as its status has arrived. Raises `OSError`; `is_sent` of the request then says what that means."""
        is_call, is_get = request.silence_seconds is None, request.method == "GET"
        encoding = "gzip" if is_call and is_get else "identity"
        message = self._encode(request, {"Accept-Encoding": encoding, **headers})
        connection = await (self._get_shared() if is_call else self._connect(HttpConnection.abort))
        request.is_sent = True
        try:
            return await connection.exchange(message, silence_seconds=request.silence_seconds)
        except ClosedIdleConnectionError:
            if not is_get:
                raise
        connection = await self._get_shared(may_be_idle=False)
        return await connection.exchange(message, silence_seconds=request.silence_seconds)

    async def close(self) -> None:
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in self._open:
            connection.abort()
        if self._open:
            await asyncio.wait([each.closed for each in self._open], timeout=CLOSING_SECONDS)

    @cached_property
    def _route(self) -> HttpRoute:
        return find_route(self._configuration)

    def _encode(self, request: ApiRequest, headers: Mapping[str, str]) -> bytes:
        content = b"" if request.body is None else msgspec.json.encode(request.body)
        lines = [f"{request.method} {self._route.target_prefix}{request.target} HTTP/1.1", *self._route.header_lines]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if request.body is not None:
            lines.append(f"Content-Length: {len(content)}")
        head = "\r\n".join(lines)
        if len(head.splitlines()) != len(lines):
            raise ValueError("a header contains a line break")
        return b"%b\r\n\r\n%b" % (head.encode(), content)

    async def _get_shared(self, *, may_be_idle: bool = True) -> HttpConnection:
        """An idle one or a new one. Waits while all places are taken."""
        await self._places.acquire()
        try:
            return (self._take_idle() if may_be_idle else None) or await self._connect(self._keep)
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
        route, loop = self._route, asyncio.get_running_loop()
        host, port = route.address
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                link = await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS)
                _, connection = await loop.create_connection(
                    lambda: HttpConnection(on_free),
                    sock=link,
                    ssl=self._tls if route.tls_name else None,
                    server_hostname=route.tls_name,
                )
                if route.tunnel_request:
                    await connection.open_tunnel(route.tunnel_request, self._tls, route.tunnel_tls_name)
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


def _build_tls(configuration: Configuration) -> ssl.SSLContext:
    tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        tls.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls
