"""Exchanges frames (`guest/frames.h`) with the first process of a virtual machine, over QEMU's socket for the serial line.

Single-threaded. Only `frames` blocks: while it waits for the machine, it sends what is pending.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

HEAD = struct.Struct("<III")
NUMBER = struct.Struct("<i")
TAKEN = "T"
MOST_BYTES = 1 << 14
"""Content of one frame; longer input takes several frames."""
WINDOW_BYTES = 1 << 15
"""Most bytes that are not acknowledged yet: the guest's kernel drops what does not fit its buffers (640 KiB)."""


class ClosedError(Exception):
    """The machine has closed the line."""


@dataclass(frozen=True, slots=True)
class SerialFrame:
    program: int
    kind: str
    content: bytes

    @property
    def number(self) -> int:
        return int(NUMBER.unpack(self.content)[0])


class SerialLine:
    def __init__(self, connected: socket.socket) -> None:
        connected.settimeout(0)
        self._socket = connected
        self._received = bytearray()
        self._unsent = bytearray()
        self._untaken_bytes = 0

    def send(self, program: int, kind: str, content: bytes = b"") -> None:
        """Sends at once, or during the next wait if the window is full. Raises `ValueError` for more than `MOST_BYTES`."""
        if len(content) > MOST_BYTES:
            raise ValueError(f"a frame of {len(content)} bytes, {MOST_BYTES} is the most")
        self._unsent += HEAD.pack(program, ord(kind), len(content)) + content
        self._send_now()

    def frames(self, seconds: float) -> Iterator[SerialFrame]:
        """Yields frames as they arrive. Raises `TimeoutError` after this time, and `ClosedError`."""
        deadline = time.monotonic() + seconds
        while True:
            frame = self._next()
            if frame is None:
                self._exchange(deadline)
            elif frame.kind == TAKEN:
                self._untaken_bytes -= frame.number
            else:
                yield frame

    def _next(self) -> SerialFrame | None:
        if len(self._received) < HEAD.size:
            return None
        program, kind, length = HEAD.unpack_from(self._received)
        end = HEAD.size + length
        if len(self._received) < end:
            return None
        frame = SerialFrame(program, chr(kind), bytes(self._received[HEAD.size : end]))
        del self._received[:end]
        return frame

    def _exchange(self, deadline: float) -> None:
        senders = [self._socket] if self._allowed_bytes() else []
        left = deadline - time.monotonic()
        if left < 0:
            raise TimeoutError
        readable, writable, _ = select.select([self._socket], senders, [], left)
        if writable:
            self._send_now()
        if readable:
            self._receive()

    def _allowed_bytes(self) -> int:
        return min(len(self._unsent), WINDOW_BYTES - self._untaken_bytes)

    def _send_now(self) -> None:
        try:
            sent = self._socket.send(self._unsent[: self._allowed_bytes()])
        except BlockingIOError:
            return
        except ConnectionError as error:
            raise ClosedError from error
        self._untaken_bytes += sent
        del self._unsent[:sent]

    def _receive(self) -> None:
        try:
            got = self._socket.recv(1 << 16)
        except ConnectionError as error:
            raise ClosedError from error
        if not got:
            raise ClosedError
        self._received += got
