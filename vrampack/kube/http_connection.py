"""One HTTP/1.1 connection to the API server, and the answers that come on it, one at a time.

    idle --send--> waits for the status --> gives the body --complete, and closed by its reader--> idle
                          |                      |
                          '--- cut, silent, not HTTP, or closed before its end ---> aborted

An answer that is cut is an error, never a short answer: the caller of a Binding then does not know whether it was written.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import Callable, Iterator
from http import HTTPStatus

import httptools

from vrampack.kube.watch_reader import ByteStream

MAX_HELD_BYTES = 4 * 1024 * 1024
"""Of an answer that its reader has not taken. Beyond this the socket is not read either."""
FRAMING_HEADERS = (b"content-length", b"transfer-encoding")
GZIP_WINDOW = 16 + zlib.MAX_WBITS
UNPACKED_BYTES = 64 * 1024
"""At a time. For larger results the allocator gets fresh memory each time, which took as long as unpacking."""


class SilentServerError(TimeoutError):
    """The server sent nothing for longer than it may."""


class ClosedIdleConnectionError(ConnectionError):
    """A connection that had been idle was closed before a byte of the answer came."""


class StreamedReply:
    """An answer: its status, and its body as it arrives. A reader gets everything that arrived before an error is raised."""

    def __init__(self, connection: HttpConnection) -> None:
        self.status = 0
        """0 until it arrives."""
        self.retry_after = ""
        """Its `Retry-After`: no caller reads another header."""
        self.is_compressed = False
        self.is_complete = False
        self._connection = connection
        self._pieces: list[bytes] = []
        self._held_bytes = 0
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def content(self) -> ByteStream:
        """The body as it arrives."""
        return self

    async def wait_for_status(self) -> None:
        while not self.status:
            await self._wait()

    async def read_body(self, max_bytes: int) -> bytes:
        """The body, but no more than `max_bytes` of it."""
        kept, left = list[bytes](), max_bytes
        unpacker = zlib.decompressobj(GZIP_WINDOW) if self.is_compressed else None
        try:
            while left and (pieces := await self._wait_for_pieces()):
                for piece in pieces:
                    for part in _unpack(unpacker, piece, left) if unpacker else [piece[:left]]:
                        kept.append(part)
                        left -= len(part)
        except zlib.error as error:
            raise ConnectionError(f"the compressed answer is damaged: {error}") from error
        if unpacker and left and not unpacker.eof:
            raise ConnectionError("the compressed answer has no end")
        return b"".join(kept)

    async def readany(self) -> bytes:
        return b"".join(await self._wait_for_pieces())

    def read_nowait(self, n: int = -1) -> bytes:  # noqa: ARG002 - the shape of `ByteStream`
        return b"".join(self._take_pieces())

    def close(self) -> None:
        """Stop reading. Its connection is kept only if the whole answer has arrived."""
        self._connection.end_request(self)

    def add_piece(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._held_bytes += len(piece)
        if self._held_bytes > MAX_HELD_BYTES:
            self._connection.pause_reading()
        self.wake()

    def finish(self) -> None:
        self.is_complete = True
        self.wake()

    def fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait_for_pieces(self) -> list[bytes]:
        """What has arrived; empty at the end."""
        while not self._pieces and not self.is_complete:
            await self._wait()
        return self._take_pieces()

    def _take_pieces(self) -> list[bytes]:
        pieces, self._pieces = self._pieces, []
        if self._held_bytes > MAX_HELD_BYTES:
            self._connection.resume_reading()
        self._held_bytes = 0
        return pieces

    async def _wait(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter


class HttpConnection(asyncio.Protocol):
    """A connection. The parser calls the methods `on_...` by their names."""

    def __init__(self, on_free: Callable[[HttpConnection], None]) -> None:
        """`on_free` is called when a request is over; the connection can then be used again if it `is_open`."""
        self.idle_since = 0.0
        self._on_free = on_free
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._reply: StreamedReply | None = None
        self._encoding = b""
        self._is_framed = self._is_kept_alive = False
        self._is_reused = self._is_answered = False
        self._is_paused = False
        self._silence: asyncio.TimerHandle | None = None
        self._heard_at = 0.0

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    async def exchange(self, request: bytes, *, silence_seconds: float | None) -> StreamedReply:
        """Send a request. Returns the answer once its status has arrived."""
        reply = self._send(request)
        if silence_seconds is not None:
            self._heard_at = self._loop.time()
            self._silence = self._loop.call_later(silence_seconds, self._check_silence, silence_seconds)
        try:
            await reply.wait_for_status()
        except BaseException:  # of a cancelled call too: its answer may still arrive, so the connection is closed
            reply.close()
            raise
        return reply

    async def open_tunnel(self, request: bytes, tls: ssl.SSLContext, server_name: str) -> None:
        """Ask the proxy at the other end for a tunnel to a server, and use TLS with that server."""
        try:
            reply = self._send(request)
            await reply.wait_for_status()
            if not HTTPStatus.OK <= reply.status < HTTPStatus.MULTIPLE_CHOICES:
                raise ConnectionError(f"the proxy answered {reply.status} to CONNECT")  # noqa: TRY301 - closed as by any other
            self._reply, self._parser = None, httptools.HttpResponseParser(self)
            self.connection_made(await self._loop.start_tls(self._transport, self, tls, server_hostname=server_name))  # type: ignore[arg-type]  # None is no TLS
        except BaseException:  # a cancellation too
            self._reply = None
            self.abort()
            raise

    def end_request(self, reply: StreamedReply) -> None:
        """Called when the reader of this answer is done with it. A second call changes nothing."""
        if reply is not self._reply:
            return
        self._reply, self._is_reused = None, True
        if self._silence is not None:
            self._silence.cancel()
        if not (reply.is_complete and self._is_kept_alive):
            self.abort()
        self._on_free(self)

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def pause_reading(self) -> None:
        self._is_paused = True
        if self.is_open:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._heard_at = self._loop.time()
        if self.is_open:
            self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # of a stream it is one

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        self._is_answered = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(ConnectionError(f"the answer is not HTTP: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set_result(None)
        reply = self._reply
        if reply is None or reply.is_complete:
            return
        if reply.status and not self._is_framed and error is None:
            reply.finish()
        else:
            kind = ClosedIdleConnectionError if self._is_reused and not self._is_answered else ConnectionError
            reply.fail(kind(f"the connection was closed before the answer ended: {error or 'end of file'}"))

    def on_message_begin(self) -> None:
        if self._reply is None or self._reply.is_complete:
            raise ConnectionError("an answer without a request")
        self._is_framed, self._encoding = False, b""

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in FRAMING_HEADERS:
            self._is_framed = True
        elif name == b"content-encoding":
            self._encoding = value.lower()
        elif name == b"retry-after" and self._reply is not None:
            self._reply.retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._reply is None or status < HTTPStatus.OK:
            return
        self._reply.is_compressed = self._encoding == b"gzip"
        if self._encoding not in {b"", b"identity", b"gzip"} or (self._reply.is_compressed and self._silence):
            raise ConnectionError("the answer is compressed, which the request did not allow")
        self._is_kept_alive = self._parser.should_keep_alive()
        self._reply.status = status
        self._reply.wake()

    def on_body(self, body: bytes) -> None:
        if self._reply is not None:
            self._reply.add_piece(body)

    def on_message_complete(self) -> None:
        if self._reply is not None and self._reply.status:
            self._reply.finish()

    def _send(self, request: bytes) -> StreamedReply:
        """Write it at once; the answer fills as bytes arrive."""
        self._reply, self._is_answered = StreamedReply(self), False
        self._transport.write(request)
        return self._reply

    def _check_silence(self, seconds: float) -> None:
        left = self._heard_at + seconds - self._loop.time()
        if self._is_paused or left > 0:
            self._silence = self._loop.call_later(left if left > 0 else seconds, self._check_silence, seconds)
        else:
            self._fail(SilentServerError())

    def _fail(self, error: Exception) -> None:
        if self._reply is not None:
            self._reply.fail(error)
        self.abort()


def _unpack(unpacker: zlib._Decompress, piece: bytes, left: int) -> Iterator[bytes]:
    """What the next piece of a compressed body says, but no more than `left` bytes, and nothing behind its end."""
    while not unpacker.eof and (size := min(left, UNPACKED_BYTES)):
        part = unpacker.decompress(piece, size)
        yield part
        if len(part) < size:
            return
        left -= size
        piece = unpacker.unconsumed_tail
