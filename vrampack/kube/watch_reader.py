"""Cuts the bytes of a watch into lines."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from vrampack.kube.errors import BrokenWatchError, NoAnswerError

MAX_LINE_BYTES = 16 * 1024 * 1024
"""etcd takes objects of 1.5 MiB, and JSON may escape every byte of one as six."""


class ByteStream(Protocol):
    """What is used of `aiohttp.StreamReader`."""

    def read_nowait(self, n: int = -1) -> bytes:
        """Everything that has come; empty where that is nothing."""
        ...

    async def readany(self) -> bytes:
        """Wait until something has come; empty at the end."""
        ...


class WatchReader:
    """The lines of one watch, one event each."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._lines: deque[bytes] = deque()
        self._begun: list[bytes] = []
        """Pieces of a line whose end has not come."""
        self._begun_bytes = 0

    async def read_line(self) -> bytes:
        """The next line with its end; empty when the server ended the watch.

        Raises `BrokenWatchError` where the end comes within a line, `NoAnswerError` for a line without end, and what
        the stream raises.
        """
        while not self._lines:
            data = self._stream.read_nowait() or await self._stream.readany()
            if not data:
                if self._begun:
                    raise BrokenWatchError("the watch ended within a line")
                return b""
            self._split(data)
        return self._lines.popleft()

    def _split(self, data: bytes) -> None:
        first, *others = data.split(b"\n")
        self._begun.append(first)
        self._begun_bytes += len(first)
        if self._begun_bytes > MAX_LINE_BYTES:
            raise NoAnswerError(f"a line of the watch is longer than {MAX_LINE_BYTES} bytes")
        if not others:
            return
        self._lines.append(b"".join(self._begun) + b"\n")
        self._lines.extend(line + b"\n" for line in others[:-1])
        self._begun = [others[-1]] if others[-1] else []
        self._begun_bytes = len(others[-1])
