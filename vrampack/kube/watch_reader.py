"""Reads a watch line by line, and reports each wait for more."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol, Self

from vrampack.kube.errors import BrokenWatchError, NoAnswerError
from vrampack.kube.list_page import MAX_OBJECT_BYTES
from vrampack.kube.watch_lag import WAIT_SECONDS, WatchLag


class ByteStream(Protocol):
    """The body of an answer, as it arrives: `http_connection.StreamedReply`."""

    def read_nowait(self, n: int = -1) -> bytes:
        """Everything that has come; empty if that is nothing."""
        ...

    async def readany(self) -> bytes:
        """Wait until something has come; empty at the end."""
        ...


class WatchReader:
    """The lines of one watch, one event each. A context manager: it reports waits only inside the block."""

    def __init__(self, stream: ByteStream, lag: WatchLag) -> None:
        self._stream = stream
        self._lag = lag
        self._lines: deque[bytes] = deque()
        self._begun: list[bytes] = []
        """Pieces of a line whose end has not come yet."""
        self._begun_bytes = 0
        self._is_waiting = False
        self._next_piece: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._begin_piece()
        return self

    def __exit__(self, *_: object) -> None:
        if self._next_piece is not None:
            self._next_piece.cancel()
        self._lag.note_watch_ended()

    async def read_line(self) -> bytes | None:
        """The next line without its line end; None when the server ended the watch.

        Raises `BrokenWatchError` if the watch ends within a line, `NoAnswerError` for a line that is too long, and what
        the stream raises.
        """
        while not self._lines:
            data = self._stream.read_nowait() or await self._wait()
            if not data:
                if self._begun:
                    raise BrokenWatchError("the watch ended within a line")
                return None
            self._split(data)
        return self._lines.popleft()

    async def _wait(self) -> bytes:
        """Wait for the next bytes; empty at the end."""
        self._lag.note_wait_started()
        self._is_waiting = True
        try:
            return await self._stream.readany()
        finally:
            self._is_waiting = False
            self._lag.note_wait_ended()

    def _begin_piece(self) -> None:
        """Report a wait once a second while it lasts."""
        if self._is_waiting:
            self._lag.note_wait_ended()
            self._lag.note_wait_started()
        self._next_piece = asyncio.get_running_loop().call_later(WAIT_SECONDS, self._begin_piece)

    def _split(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        if lines and self._begun:
            lines[0] = b"".join([*self._begun, lines[0]])
        if lines:
            self._lines.extend(lines)
            self._begun, self._begun_bytes = [], 0
        if rest:
            self._begun.append(rest)
            self._begun_bytes += len(rest)
        if self._begun_bytes > MAX_OBJECT_BYTES:
            raise NoAnswerError(f"a line of the watch is longer than {MAX_OBJECT_BYTES} bytes")
