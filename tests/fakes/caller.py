"""A bare HTTP/1.1 client: sends the bytes it is given and reads one reply, on a connection it keeps."""

import asyncio
import ssl
from types import TracebackType
from typing import Self

from tests.fakes.http1 import HEAD_LIMIT, HttpHead, chunk_content, content, read_head, reply_pieces

LOST = (ConnectionError, EOFError)
"""What a caller sees when the line is cut."""


class RawHttpClient:
    """One connection. `async with RawHttpClient(port) as caller: await caller.ask(...)`."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._port = port
        self._tls = tls
        self._head: HttpHead | None = None

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._port, ssl=self._tls, limit=HEAD_LIMIT
        )
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.leave()

    async def leave(self) -> None:
        """Close the connection."""
        self._writer.transport.abort()
        await asyncio.wait({asyncio.ensure_future(self._writer.wait_closed())})

    async def ask(self, method: str, target: str, body: bytes = b"") -> tuple[int, bytes]:
        """One request; status and body of its reply."""
        await self.send(method, target, body)
        head = await self.head()
        return head.status, content(head, [piece async for piece in reply_pieces(self._reader, head, method)])

    async def send(self, method: str, target: str, body: bytes = b"") -> None:
        await self.send_raw(b"%s %s HTTP/1.1\r\nHost: x\r\n" % (method.encode(), target.encode()) + _counted(body))

    async def send_raw(self, raw: bytes) -> None:
        self._writer.write(raw)
        await self._writer.drain()

    async def head(self) -> HttpHead:
        """The next reply's head."""
        head = await read_head(self._reader)
        if head is None:
            raise ConnectionResetError("closed without a reply")
        return head

    async def chunk(self) -> bytes:
        """What the next chunk holds."""
        size = await self._reader.readuntil(b"\r\n")
        return chunk_content(size + await self._reader.readexactly(int(size, 16) + 2))

    async def rest(self) -> bytes:
        """Everything until the other side closes."""
        return await self._reader.read(-1)


def _counted(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(body) + body
