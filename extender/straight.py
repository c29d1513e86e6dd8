"""Verbs that are answered at once: from the parser to the decision to the wire, in one turn of the loop.

The way through ASGI makes a task for each request and wakes it for each part of its body; that took 30 us of the 110 us
of a repeated "no", and a scheduler waits for each of them. Whatever is unusual (a verb that has to wait, another path,
an `Expect`, a connection that is to be closed, a request behind another one) goes the usual way and is answered alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from extender.door import MAX_BODY_BYTES, TOO_LARGE
from extender.server import DeadlineProtocol
from extender.verbs import Answer

_STATUS_LINES = {
    200: b"HTTP/1.1 200 OK\r\n",
    400: b"HTTP/1.1 400 Bad Request\r\n",
    413: b"HTTP/1.1 413 Request Entity Too Large\r\n",
    500: b"HTTP/1.1 500 Internal Server Error\r\n",
    503: b"HTTP/1.1 503 Service Unavailable\r\n",
}
_UNUSUAL_HEADERS = frozenset({b"expect", b"upgrade"})


class StraightProtocol(DeadlineProtocol):
    """One connection. `decisions` are the verbs that never wait, by path."""

    decisions: ClassVar[Mapping[bytes, Callable[[bytes], Answer]]] = {}
    _decide: Callable[[bytes], Answer] | None = None
    """Of the request that is arriving."""
    _parts: list[bytes]
    _size = 0
    _is_last = False
    """Close after this answer: the server is stopping, or the body is too large."""

    def on_headers_complete(self) -> None:
        decide = self.decisions.get(self.url)
        if decide is None or not self._is_usual():
            super().on_headers_complete()
            return
        self._is_in_head = False
        self._decide, self._parts, self._size = decide, [], 0

    def on_body(self, body: bytes) -> None:
        if self._decide is None:
            super().on_body(body)
            return
        if self._size > MAX_BODY_BYTES:
            return
        self._size += len(body)
        self._parts.append(body)
        if self._size > MAX_BODY_BYTES:
            # The rest is read and dropped: to close with bytes unread would take the answer away as well.
            self._parts = []
            self._is_last = True
            self._write(TOO_LARGE)

    def on_message_complete(self) -> None:
        decide = self._decide
        if decide is None:
            super().on_message_complete()
            return
        self._decide = None
        self._is_receiving = False
        self._disarm()
        if self.transport.is_closing():
            return
        if self._size <= MAX_BODY_BYTES:
            self._write(decide(b"".join(self._parts)))
        self._parts = []
        self.server_state.total_requests += 1
        if self._is_last:
            self.transport.close()
            return
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def shutdown(self) -> None:
        """Close, after the answer to the request that is arriving."""
        if self._decide is None:
            super().shutdown()
        else:
            self._is_last = True

    def _is_usual(self) -> bool:
        length = 0
        for name, value in self.headers:
            if name in _UNUSUAL_HEADERS:
                return False
            if name == b"content-length":
                length = int(value)
        limit = self.limit_concurrency
        return (
            self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and length <= MAX_BODY_BYTES
            and self._is_alone()
            and (limit is None or len(self.connections) < limit)
        )

    def _is_alone(self) -> bool:
        """No request before it on this connection waits for its answer."""
        earlier: RequestResponseCycle | None = self.cycle
        return earlier is None or earlier.response_complete

    def _write(self, answer: Answer) -> None:
        """In one piece."""
        lines = [_STATUS_LINES[answer.status]]
        lines += [b"%b: %b\r\n" % header for header in self.server_state.default_headers]
        lines.append(b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer.body))
        self.transport.write(b"".join((*lines, answer.body)))


def straight(verbs: Mapping[str, Callable[[bytes], Answer]]) -> type[StraightProtocol]:
    """The protocol of a listener with these verbs, by path."""

    class Straight(StraightProtocol):
        decisions: ClassVar = {path.encode(): decide for path, decide in verbs.items()}

    return Straight
