"""An API server with many pods of 1.3 MB, as any account that may create pods can make them. It has the bytes of one only."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import parse_qs, urlsplit

from tests.fakes.connections import serve_connections
from tests.fakes.http1 import chunk, read_head

POD_BYTES = 1_300_000
PIECE_BYTES = 1 << 16
GZIP_WINDOW = 31
"""zlib's number for a gzip stream."""


@dataclass(slots=True, eq=False)
class LargePodServer:
    """Lists `pods` pods; every watch stays silent until `expire_watches`."""

    pods: int
    is_compressed: bool = False
    """As the API server compresses lists for clients that allow it."""
    limits: list[int] = field(default_factory=list)
    """Of the pages that were requested, in order."""
    url: str = ""
    _expired: asyncio.Event = field(default_factory=asyncio.Event)
    _connections: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def __aenter__(self) -> Self:
        port = await self._connections.enter_async_context(serve_connections(self._serve))
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connections.aclose()

    def expire_watches(self) -> None:
        """Answer every watch, from now on, that its version has expired."""
        self._expired.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await read_head(reader):
            target = urlsplit(head.start[1])
            query = {key: values[0] for key, values in parse_qs(target.query).items()}
            if "watch" in query:
                await self._expired.wait()
                await _write_reply(writer, iter([b'{"type":"ERROR","object":{"kind":"Status","code":410}}\n']))
            elif target.path.endswith("/pods"):
                self.limits.append(int(query["limit"]))
                pieces = self._list_pods(self.limits[-1], int(query.get("continue", "0")))
                await _write_reply(writer, pieces, is_compressed=self.is_compressed)
            else:
                await _write_reply(writer, iter([_begin_list("NodeList", ""), b"]}"]))

    def _list_pods(self, limit: int, start: int) -> Iterator[bytes]:
        end = min(start + limit, self.pods)
        yield _begin_list("PodList", str(end) if end < self.pods else "")
        for number in range(start, end):
            yield b"," if number > start else b""
            yield from _encode_pod(number)
        yield b"]}"


def _begin_list(kind: str, token: str) -> bytes:
    metadata = {"resourceVersion": "1", "continue": token}
    return json.dumps({"kind": kind, "apiVersion": "v1", "metadata": metadata, "items": []}).encode()[:-2]


def _encode_pod(number: int) -> Iterator[bytes]:
    """A pod that asks for nothing and has one long variable."""
    metadata = {"name": f"p{number:04}", "namespace": "tenant", "uid": f"uid-{number}", "resourceVersion": "1"}
    container = {"name": "main", "image": "pause", "env": [{"name": "A", "value": "\0"}]}
    pod = {"metadata": metadata, "spec": {"nodeName": "n", "containers": [container]}, "status": {"phase": "Failed"}}
    before, after = json.dumps(pod).encode().split(b"\\u0000")
    yield before
    for at in range(0, POD_BYTES, PIECE_BYTES):
        yield b"x" * min(PIECE_BYTES, POD_BYTES - at)
    yield after


async def _write_reply(writer: asyncio.StreamWriter, pieces: Iterator[bytes], *, is_compressed: bool = False) -> None:
    packer = zlib.compressobj(level=1, wbits=GZIP_WINDOW) if is_compressed else None
    encoding = b"Content-Encoding: gzip\r\n" if is_compressed else b""
    writer.write(b"HTTP/1.1 200 OK\r\n%bTransfer-Encoding: chunked\r\n\r\n" % encoding)
    for piece in pieces:
        packed = packer.compress(piece) if packer else piece
        if packed:
            writer.write(chunk(packed))
        await writer.drain()
        await asyncio.sleep(0)  # the client may hang up
    if packer:
        writer.write(chunk(packer.flush()))
    writer.write(chunk(b""))
    await writer.drain()
