"""HTTP/1.1 messages read as the bytes they are, so that a proxy can pass them on unchanged.

Only what proxying needs: where a message ends. Bodies come in pieces that keep their framing; a chunk is one piece, which
for a watch is what the server flushed at once.
"""

import asyncio
import gzip
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass

HEAD_LIMIT = 1 << 20
"""Longest head; also the reader's buffer. Bodies may be larger."""

_PIECE = 1 << 16


class BrokenMessageError(Exception):
    """The bytes are no HTTP/1.1 message, or end in the middle of one."""


@dataclass(frozen=True, slots=True)
class HttpHead:
    """Start line and fields of a message, and the bytes they came in."""

    raw: bytes
    start: tuple[str, str, str]
    fields: Mapping[str, str]

    @property
    def is_chunked(self) -> bool:
        return "chunked" in self.fields.get("transfer-encoding", "").lower()

    @property
    def wants_close(self) -> bool:
        option = self.fields.get("connection", "").lower()
        return "close" in option or ("HTTP/1.0" in self.start and "keep-alive" not in option)

    @property
    def status(self) -> int:
        """Of a reply: `HTTP/1.1 200 OK`."""
        if not self.start[1].isdigit():
            raise BrokenMessageError(f"no status in {self.raw[:60]!r}")
        return int(self.start[1])


async def read_head(reader: asyncio.StreamReader) -> HttpHead | None:
    """The next head; None when the other side has closed."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise BrokenMessageError("ended within a head") from error
    except asyncio.LimitOverrunError as error:
        raise BrokenMessageError("head too long") from error
    start, *lines = raw.decode("latin-1").split("\r\n")[:-2]
    first, second, third = [*start.split(" ", 2), "", ""][:3]
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields[name.strip().lower()] = value.strip()
    return HttpHead(raw, (first, second, third), fields)


def request_pieces(reader: asyncio.StreamReader, head: HttpHead) -> AsyncIterator[bytes]:
    """The body of a request: chunked, of the declared length, or none."""
    return _chunks(reader) if head.is_chunked else _counted(reader, _length(head) or 0)


def reply_pieces(reader: asyncio.StreamReader, head: HttpHead, method: str) -> AsyncIterator[bytes]:
    """The body of a reply, which may also end with the connection."""
    if method == "HEAD" or head.status in {204, 304}:
        return _counted(reader, 0)
    if head.is_chunked:
        return _chunks(reader)
    length = _length(head)
    return _until_closed(reader) if length is None else _counted(reader, length)


def ends_with_connection(head: HttpHead, method: str) -> bool:
    """True for a reply that neither counts nor chunks its body."""
    return method != "HEAD" and head.status not in {204, 304} and not head.is_chunked and _length(head) is None


def content(head: HttpHead, pieces: Iterable[bytes]) -> bytes:
    """The body without framing and compression."""
    body = b"".join(chunk_content(piece) for piece in pieces) if head.is_chunked else b"".join(pieces)
    return gzip.decompress(body) if head.fields.get("content-encoding") == "gzip" else body


def chunk(body: bytes) -> bytes:
    """One chunk around a body; the empty body gives the last chunk."""
    return b"%x\r\n%s\r\n" % (len(body), body)


def chunk_content(piece: bytes) -> bytes:
    """What is in a chunk; nothing in the last one."""
    size, _, rest = piece.partition(b"\r\n")
    return rest[: int(size.split(b";")[0], 16)]


async def _counted(reader: asyncio.StreamReader, length: int) -> AsyncIterator[bytes]:
    while length > 0:
        piece = await reader.read(min(length, _PIECE))
        if not piece:
            raise BrokenMessageError(f"ended {length} bytes early")
        length -= len(piece)
        yield piece


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    try:
        while True:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            if size == 0:
                yield line + await _trailer(reader)
                return
            yield line + await reader.readexactly(size + 2)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        raise BrokenMessageError("ended within a chunk") from error


async def _trailer(reader: asyncio.StreamReader) -> bytes:
    lines = [await reader.readuntil(b"\r\n")]
    while lines[-1] != b"\r\n":
        lines.append(await reader.readuntil(b"\r\n"))
    return b"".join(lines)


async def _until_closed(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while piece := await reader.read(_PIECE):
        yield piece


def _length(head: HttpHead) -> int | None:
    length = head.fields.get("content-length")
    if length is not None and not length.isdigit():
        raise BrokenMessageError(f"length {length!r} is not a number")
    return None if length is None else int(length)
