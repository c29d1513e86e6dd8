"""A small server behind a proxy: it records what it was sent, byte for byte, and answers as configured."""

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import Self

from tests.fakes.http1 import HEAD_LIMIT, chunk, read_head, request_pieces


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
    _server: asyncio.Server | None = None
    _serving: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self.tls, limit=HEAD_LIMIT)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server:
            self._server.close()
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
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
        except OSError:
            pass
        finally:
            writer.close()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while body := await self.events.get():
            writer.write(chunk(body))
            await writer.drain()
        writer.write(chunk(b""))
