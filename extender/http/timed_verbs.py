"""Serves the verbs: times and counts each call, and turns an exception of ours into an answer.

`extender/http/protocol.py` answers usual requests, the routes of `extender/http/routes.py` all others; both call the same
objects.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

from extender.metrics import ExtenderMetrics
from extender.wire.codec import BindingResult, FilterResult, VerbResponse, encode_json

log = logging.getLogger(__name__)

RESULTS = ("ok", "no", "error")
"""The values of `VerbResponse.result`."""
MAX_BODY_BYTES = 8 * 1024 * 1024
"""Names of 15,000 nodes are 0.4 MB; whole Node objects are refused anyway."""
TOO_LARGE = VerbResponse(
    encode_json({"error": f"the body is larger than {MAX_BODY_BYTES} bytes"}),
    "error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
)
MAX_HELD_BYTES = 4 * MAX_BODY_BYTES
"""For all bodies of the listener together: many schedulers send 0.5 MB each."""
TOO_MANY_BYTES = VerbResponse(
    encode_json({"error": f"the bodies that are arriving have more than {MAX_HELD_BYTES} bytes together; call again"}),
    "error",
    HTTPStatus.SERVICE_UNAVAILABLE,
)
NOT_POST = VerbResponse(encode_json({"error": "call a verb by POST"}), "error", HTTPStatus.METHOD_NOT_ALLOWED)
SyncCall = Callable[[bytes], VerbResponse]
"""`Verbs.filter` or `Verbs.prioritize`: the answer to a call with this body, at once."""
AsyncCall = Callable[[bytes], Awaitable[VerbResponse]]
"""`Verbs.bind` or `Preemption.preempt`: the answer when it is known."""
FaultListener = Callable[[str], None]
"""`CacheRebuild.on_fault`: told during what an exception that nothing expected was handled and logged."""


class Preparation(Protocol):
    """`CallPreparation`."""

    def is_needed(self, body: bytes) -> bool:
        """Whether this call would hold the loop for long."""
        ...

    async def prepare_call(self, body: bytes) -> None:
        """Do the slow parts in several turns of the loop. The call itself reports what is wrong with it."""


class SyncVerb:
    """A verb that never waits; a call that would hold the loop for long is prepared in earlier turns."""

    def __init__(
        self,
        name: str,
        call: SyncCall,
        metrics: ExtenderMetrics,
        on_fault: FaultListener,
        preparation: Preparation | None = None,
    ) -> None:
        self.name = name
        self._call = call
        self._on_fault = on_fault
        self._preparation = preparation
        self._seconds = {result: metrics.request_seconds.labels(name, result) for result in RESULTS}

    def answer_call(self, body: bytes) -> VerbResponse | Awaitable[VerbResponse]:
        """The answer; an awaitable of it where the call has to be prepared."""
        started = time.perf_counter()
        try:
            if self._preparation is not None and self._preparation.is_needed(body):
                return self._prepare_and_answer(self._preparation, body, started)
            return self._answer_at_once(body, started)
        except Exception:
            # The top of this request: an internal error must reach the scheduler as text, not as a dropped connection.
            log.exception("verb failed verb=%s bytes=%d", self.name, len(body))
            return self._answer_fault(started)

    async def _prepare_and_answer(self, preparation: Preparation, body: bytes, started: float) -> VerbResponse:
        try:
            await preparation.prepare_call(body)
            return self._answer_at_once(body, started)
        except Exception:
            log.exception("verb failed verb=%s bytes=%d", self.name, len(body))
            return self._answer_fault(started)

    def _answer_at_once(self, body: bytes, started: float) -> VerbResponse:
        answer = self._call(body)
        self._seconds[answer.result].observe(time.perf_counter() - started)
        return answer

    def _answer_fault(self, started: float) -> VerbResponse:
        self._on_fault(self.name)
        self._seconds["error"].observe(time.perf_counter() - started)
        return _build_internal_error(self.name)


class AsyncVerb:
    """A verb that waits for the API server, or lets other verbs have their turn."""

    def __init__(
        self,
        name: str,
        call: AsyncCall,
        metrics: ExtenderMetrics,
        on_fault: FaultListener,
        preparation: Preparation | None = None,
    ) -> None:
        self.name = name
        self._call = call
        self._on_fault = on_fault
        self._preparation = preparation
        self._seconds = {result: metrics.request_seconds.labels(name, result) for result in RESULTS}
        self._in_flight = metrics.requests_in_flight.labels(name)

    async def answer_call(self, body: bytes) -> VerbResponse:
        started = time.perf_counter()
        self._in_flight.inc()
        result = "error"
        try:
            if self._preparation is not None and self._preparation.is_needed(body):
                await self._preparation.prepare_call(body)
            answer = await self._call(body)
            result = answer.result
        except Exception:
            log.exception("verb failed verb=%s bytes=%d", self.name, len(body))
            self._on_fault(self.name)
            answer = _build_internal_error(self.name)
        finally:
            self._in_flight.dec()
            self._seconds[result].observe(time.perf_counter() - started)
        return answer


@dataclass(frozen=True, slots=True)
class TimedVerbs:
    """All verbs of one service."""

    filter: SyncVerb
    prioritize: SyncVerb
    preempt: AsyncVerb
    bind: AsyncVerb

    def map_paths(self, prefix: str) -> dict[str, SyncVerb | AsyncVerb]:
        """The verbs by path."""
        return {f"{prefix}/{verb.name}": verb for verb in (self.filter, self.prioritize, self.preempt, self.bind)}


def _build_internal_error(verb: str) -> VerbResponse:
    text = "internal error of vrampack; its log has the cause"
    if verb == "filter":
        return VerbResponse(encode_json(FilterResult(error=text)), "error")
    if verb == "bind":
        return VerbResponse(encode_json(BindingResult(f"bind outcome unknown: {text}")), "error")
    return VerbResponse(encode_json({"error": text}), "error", HTTPStatus.INTERNAL_SERVER_ERROR)
