"""One HTTP/1.1 connection to the API server, and the answers that come on it, one at a time.

    idle --send--> waits for the status --> gives the body --complete, and closed by its reader--> idle
                          |                      |
                          '--- cut, silent, not HTTP, or closed before its end ---> aborted

An answer that is cut is an error, never a short answer: the caller of a Binding then does not know whether it was written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

import httptools

MAX_HELD_BYTES = 4 * 1024 * 1024
"""Of an answer that its reader has not taken. Beyond this the socket is not read either. aiohttp held as much."""
FIRST_FINAL_STATUS = 200
FRAMING_HEADERS = (b"content-length", b"transfer-encoding")


class SilentServerError(TimeoutError):
    """The server sent nothing for longer than it may."""


class StreamedReply:
    """An answer: its status, and its body as it arrives. A reader gets everything that arrived before an error is raised."""

    def __init__(self, connection: HttpConnection) -> None:
        self.status = 0
        """0 until it arrives."""
        self.headers: dict[str, str] = {}
        """Of its headers, only `Retry-After`: no caller reads another."""
        self.is_complete = False
        self._connection = connection
        self._pieces: list[bytes] = []
        self._held_bytes = 0
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def content(self) -> Self:
        return self

    async def wait_for_status(self) -> None:
        while not self.status:
            await self._wait()

    async def readany(self) -> bytes:
        while not self._pieces and not self.is_complete:
            await self._wait()
        return self.read_nowait()

    def read_nowait(self, n: int = -1) -> bytes:  # noqa: ARG002 - the shape of `ByteStream`
        pieces, self._pieces = self._pieces, []
        if self._held_bytes > MAX_HELD_BYTES:
            self._connection.resume_reading()
        self._held_bytes = 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
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
        self._is_framed = self._is_encoded = self._is_kept_alive = False
        self._is_paused = False
        self._silence: asyncio.TimerHandle | None = None
        self._heard_at = 0.0

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    def send(self, request: bytes, *, silence_seconds: float | None) -> StreamedReply:
        """Write it at once; the answer fills as bytes arrive."""
        self._reply = StreamedReply(self)
        self._transport.write(request)
        if silence_seconds is not None:
            self._heard_at = self._loop.time()
            self._silence = self._loop.call_later(silence_seconds, self._check_silence, silence_seconds)
        return self._reply

    def end_request(self, reply: StreamedReply) -> None:
        """Called when the reader of this answer is done with it. A second call changes nothing."""
        if reply is not self._reply:
            return
        self._reply = None
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
            reply.fail(ConnectionError(f"the connection was closed before the answer ended: {error or 'end of file'}"))

    def on_message_begin(self) -> None:
        if self._reply is None or self._reply.is_complete:
            raise ConnectionError("an answer without a request")
        self._is_framed = self._is_encoded = False

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in FRAMING_HEADERS:
            self._is_framed = True
        elif name == b"content-encoding" and value.lower() != b"identity":
            self._is_encoded = True
        elif name == b"retry-after" and self._reply is not None:
            self._reply.headers["Retry-After"] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._reply is None or status < FIRST_FINAL_STATUS:
            return
        if self._is_encoded:
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
