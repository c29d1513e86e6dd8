"""A small server behind a proxy: it records what it was sent, byte for byte, and answers as configured."""

import asyncio
import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Self

from tests.fakes.connections import serve_connections
from tests.fakes.http1 import chunk, read_head, request_pieces


def http_reply(body: bytes = b"{}", status: int = 200, *fields: str) -> bytes:
    """A reply with a Content-Length."""
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", *fields, "", ""]
    return "\r\n".join(lines).encode() + body


@dataclass(slots=True, eq=False)
class FakeUpstream:
    """Answers `replies` in turn, then `http_reply()`; a request for `watch=true` gets the chunks put into `events`."""

    tls: ssl.SSLContext | None = None
    replies: list[bytes] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    events: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    watches: dict[str, asyncio.StreamWriter] = field(default_factory=dict)
    """The latest watch of each path, for a test that writes without waiting for a turn of the loop."""
    port: int = 0
    _connections: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def __aenter__(self) -> Self:
        connections = serve_connections(self._serve, port=self.port, tls=self.tls)
        self.port = await self._connections.enter_async_context(connections)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connections.aclose()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while head := await read_head(reader):
            pieces = [piece async for piece in request_pieces(reader, head)]
            self.requests.append(head.raw + b"".join(pieces))
            if "watch=true" in head.start[1]:
                self.watches[head.start[1].partition("?")[0]] = writer
                await self._stream(writer)
            else:
                reply = self.replies.pop(0) if self.replies else http_reply()
                writer.write(reply)
                if b"Content-Length" not in reply and b"chunked" not in reply:
                    break

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while body := await self.events.get():
            writer.write(chunk(body))
            await writer.drain()
        writer.write(chunk(b""))
