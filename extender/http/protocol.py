"""Verbs that the connection itself answers: from the parser to the decision to the wire, in one turn of the loop.

A route costs more than the decision that it carries (81 us against 28 us around an empty verb), ASGI alone makes a task for
each request and wakes it for each part of its body (30 us of the 110 us of a repeated rejection), and a scheduler waits for
each of them. A verb that has to wait becomes a task at its last byte. Everything unusual (another path, an `Expect`, a
connection that is to be closed, a request behind another one) goes to the routes, which give the same answers: of requests
that arrive together, only the first is answered in that turn of the loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from functools import partial
from typing import ClassVar

from extender.http.body_budget import BodyBudget
from extender.http.timed_verbs import (
    MAX_BODY_BYTES,
    MAX_HELD_BYTES,
    TOO_LARGE,
    TOO_MANY_BYTES,
    AsyncVerb,
    SyncVerb,
)
from extender.http.uvicorn_protocol import PacedProtocol, PendingCycle
from extender.wire.codec import GENERATION_HEADER, VerbResponse

_GENERATION_LINE = GENERATION_HEADER.encode() + b": %d\r\n"
_STATUS_LINES = {
    200: b"HTTP/1.1 200 OK\r\n",
    400: b"HTTP/1.1 400 Bad Request\r\n",
    413: b"HTTP/1.1 413 Request Entity Too Large\r\n",
    500: b"HTTP/1.1 500 Internal Server Error\r\n",
    503: b"HTTP/1.1 503 Service Unavailable\r\n",
}


class VerbProtocol(PacedProtocol):
    """One connection."""

    verbs: ClassVar[Mapping[bytes, SyncVerb | AsyncVerb]] = {}
    """By path."""
    body_budget: ClassVar[BodyBudget]
    """The listener's budget, shared with the bodies that the routes read; `build_protocol` sets it."""
    _verb: SyncVerb | AsyncVerb | None = None
    """The verb of the request that is arriving."""
    _body_parts: list[bytes]
    _size = 0
    _announced_bytes = 0
    """The length of its body; 0 when that comes in chunks."""
    _is_refused = False
    """The body was refused and answered so: the rest of it is dropped as it comes."""
    _closes_after_response = False
    """Close after this answer: the server is stopping, the body was refused, or the caller sends nothing more."""

    def on_headers_complete(self) -> None:
        verb = self.verbs.get(self.url)
        length = None if verb is None or self._has_answered else self.find_plain_length(MAX_BODY_BYTES)
        if verb is None or length is None:
            super().on_headers_complete()
            return
        self._is_in_head = False
        self._verb, self._body_parts, self._size, self._announced_bytes = verb, [], 0, length

    def on_body(self, body: bytes) -> None:
        if self._verb is None:
            self.body_budget.charge_bytes(self, len(body))
            super().on_body(body)
            return
        self._size += len(body)
        if self._is_refused:
            return
        self._body_parts.append(body)
        if self._size > MAX_BODY_BYTES:
            self.body_budget.uncharge_body(self)
            self._refuse_body(TOO_LARGE)
        else:
            self.body_budget.charge_bytes(self, len(body))

    def refuse_body(self) -> None:
        """Make room for later bodies. The routes cannot be told, so their caller's connection is cut."""
        if self._verb is None:
            self.transport.abort()
        else:
            self._refuse_body(TOO_MANY_BYTES)

    def on_message_complete(self) -> None:
        verb = self._verb
        self.body_budget.note_complete(self)
        if verb is None:
            super().on_message_complete()
            return
        self._verb = None
        self.end_arrival()
        if self.transport.is_closing():
            return
        body, self._body_parts = b"".join(self._body_parts), []
        if self._is_refused:
            self._finish_response()
            return
        answer = verb.answer_call(body)
        if isinstance(answer, VerbResponse):
            self._write_response(answer)
            self._finish_response()
            return
        self.answer_later(partial(self._await_answer, answer))

    def on_response_complete(self) -> None:
        self.body_budget.uncharge_body(self)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.is_deciding:
            self.body_budget.uncharge_body(self)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close, after the answer to the request that is arriving or being decided."""
        self._closes_after_response = True
        if self._verb is None:
            super().shutdown()

    def eof_received(self) -> bool:  # type: ignore[override] # as the base has it
        is_answering = super().eof_received()
        self._closes_after_response |= is_answering
        return is_answering

    async def _await_answer(self, answer: Awaitable[VerbResponse], cycle: PendingCycle) -> None:
        """Send the answer when it is known. The caller may be gone by then; the verb is finished all the same."""
        response = await answer
        cycle.response_complete = True
        self.body_budget.uncharge_body(self)
        if not self.transport.is_closing():
            self._write_response(response)
            self._finish_response()

    def _refuse_body(self, answer: VerbResponse) -> None:
        """Answer, then read and drop the rest: closing with bytes unread would destroy the answer as well."""
        self._body_parts = []
        self._is_refused = self._closes_after_response = True
        self._write_response(answer)

    def _finish_response(self) -> None:
        self.finish_answer(is_last=self._closes_after_response)

    def _count_awaited_bytes(self) -> int:
        return max(0, self._announced_bytes - self._size) if self._verb is not None else 0

    def _write_response(self, answer: VerbResponse) -> None:
        lines = [_STATUS_LINES[answer.status]]
        if answer.generation:
            lines.append(_GENERATION_LINE % answer.generation)
        lines.append(b"content-length: %d\r\ncontent-type: application/json\r\n\r\n" % len(answer.body))
        self.write_answer(lines, answer.body)


def build_protocol(verbs: Mapping[str, SyncVerb | AsyncVerb]) -> type[VerbProtocol]:
    """The protocol of a listener with these verbs, by path."""
    by_path = {path.encode(): verb for path, verb in verbs.items()}

    class ListenerVerbProtocol(VerbProtocol):
        verbs: ClassVar = by_path
        body_budget = BodyBudget(MAX_HELD_BYTES)

    return ListenerVerbProtocol
