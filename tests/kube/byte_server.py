"""A server that answers with the bytes of a test, valid or not, and then keeps, closes or resets the connection."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from tests.fakes.connections import serve_connections
from tests.fakes.http1 import read_head, request_pieces

WITHIN_SECONDS = 5.0
RESETTING = struct.pack("ii", 1, 0)
"""SO_LINGER: closing discards unsent data and resets."""


class AfterReply(Enum):
    """What happens to the connection."""

    KEEP = "keep"
    CLOSE = "close"
    RESET = "reset"


@dataclass(slots=True)
class ByteReply:
    """Bytes of an answer, written all at once or one by one."""

    raw: bytes
    then: AfterReply = AfterReply.KEEP
    is_slow: bool = False


@dataclass(slots=True, eq=False)
class ByteServer:
    """Sends its `replies` in turn, and repeats the last."""

    replies: list[ByteReply]
    requests: list[bytes] = field(default_factory=list)
    accepted: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set)
    most_open: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    port: int = 0
    _connections: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self.port = await self._connections.enter_async_context(serve_connections(self._serve, port=self.port))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connections.aclose()

    async def asked(self, times: int) -> None:
        """Wait until that many requests have arrived."""
        await self._wait_until(lambda: len(self.requests) >= times)

    async def all_closed(self) -> None:
        """Wait until no connection is open."""
        await self._wait_until(lambda: not self.open)

    async def _wait_until(self, holds: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(WITHIN_SECONDS), self.changed:
                await self.changed.wait_for(holds)
        except TimeoutError as error:
            raise AssertionError(f"{len(self.open)} connections are open, the requests: {self.requests}") from error

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.open.add(writer)
        self.most_open = max(self.most_open, len(self.open))
        try:
            while head := await read_head(reader):
                pieces = [piece async for piece in request_pieces(reader, head)]
                self.requests.append(head.raw + b"".join(pieces))
                await self._tell()
                reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                await _write(writer, reply)
                if reply.then is not AfterReply.KEEP:
                    break
        finally:
            writer.close()
            self.open.discard(writer)
            await self._tell()

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()


async def _write(writer: asyncio.StreamWriter, reply: ByteReply) -> None:
    for piece in [bytes([byte]) for byte in reply.raw] if reply.is_slow else [reply.raw]:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)  # lets the client read this byte before the next one
    if reply.then is AfterReply.RESET:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETTING)
