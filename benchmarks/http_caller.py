"""A keep-alive HTTP/1.1 caller on a bare socket, which measures the other side, the kernel and little else."""

from __future__ import annotations

import re
import socket
import struct
import time
from dataclasses import dataclass
from typing import Self

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_BUFFER_BYTES = 8 * 1024 * 1024
_DATA_SEGMENTS_IN = 152
"""Offset of `tcpi_data_segs_in` in Linux's `struct tcp_info`."""
_GET = "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
_POST = (
    "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: {length}\r\n"
    "Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class HttpReply:
    """One answer, and how it came."""

    body: bytes
    seconds: float
    """From before the first byte was sent until the last byte arrived."""
    read_count: int
    segment_count: int


class HttpCaller:
    """One connection: `with HttpCaller(port) as caller: caller.send_post(path, body)`."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send_post(self, path: str, body: bytes) -> HttpReply:
        """Send one request and read its whole answer. Raises `RuntimeError` for any status but 200."""
        return self._send_request(path, _POST.format(path=path, length=len(body)).encode() + body)

    def send_get(self, path: str) -> HttpReply:
        """The same without a body."""
        return self._send_request(path, _GET.format(path=path).encode())

    def _send_request(self, path: str, request: bytes) -> HttpReply:
        segments = self._count_segments()
        started = time.perf_counter()
        self._socket.sendall(request)
        received = reads = 0
        expected = None
        while expected is None or received < expected:
            count = self._socket.recv_into(self._buffer[received:])
            if not count:
                raise ConnectionError(f"{path}: cut after {received} bytes of the answer")
            received += count
            reads += 1
            expected = expected or self._find_expected_bytes(received)
        seconds = time.perf_counter() - started
        answer = bytes(self._buffer[:received])
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"{path}: {answer[:300]!r}")
        body_at = answer.index(b"\r\n\r\n") + 4
        return HttpReply(answer[body_at:], seconds, reads, self._count_segments() - segments)

    def _find_expected_bytes(self, received: int) -> int | None:
        """The bytes of head and body, once the head has arrived."""
        head, end, _ = bytes(self._buffer[: min(received, 4096)]).partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        return len(head) + len(end) + int(length[1]) if end and length else None

    def _count_segments(self) -> int:
        """The TCP segments with data that this end has received, as counted by the kernel."""
        text = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        return int(struct.unpack_from("I", text, _DATA_SEGMENTS_IN)[0])
