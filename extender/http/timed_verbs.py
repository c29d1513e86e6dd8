"""The verbs, ahead of the application: read, decided and answered without a layer between.

A route costs more than the decision it carries (81 us against 28 us around an empty verb), and a scheduler waits for
each of them. So the verbs stand before the application: their requests end here, all others go on to its routes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from starlette.types import ASGIApp, Receive, Scope, Send

from extender.metrics import ExtenderMetrics
from extender.wire.codec import BindingResult, FilterResult, VerbResponse, encode_json

log = logging.getLogger(__name__)

RESULTS = ("ok", "no", "error")
"""Of `Answer.result`."""
MAX_BODY_BYTES = 8 * 1024 * 1024
"""Names of 15,000 nodes are 0.4 MB; whole Node objects are refused anyway."""
TOO_LARGE = VerbResponse(
    encode_json({"error": f"the body is larger than {MAX_BODY_BYTES} bytes"}),
    "error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
)


NOT_POST = VerbResponse(encode_json({"error": "a verb is called by POST"}), "error", HTTPStatus.METHOD_NOT_ALLOWED)


class SyncVerb:
    """A verb that never waits, timed, with a fault of ours made into an answer."""

    def __init__(self, verb: str, answer_call: Callable[[bytes], VerbResponse], metrics: ExtenderMetrics) -> None:
        self._verb = verb
        self._answer_call = answer_call
        self._seconds = {result: metrics.request_seconds.labels(verb, result) for result in RESULTS}

    def __call__(self, body: bytes) -> VerbResponse:
        started = time.perf_counter()
        try:
            answer = self._answer_call(body)
        except Exception:
            # The top of this request: a fault of ours must reach the scheduler as a text, not as a dropped connection.
            log.exception("verb failed verb=%s bytes=%d", self._verb, len(body))
            answer = _build_internal_error(self._verb)
        self._seconds[answer.result].observe(time.perf_counter() - started)
        return answer


class AsyncVerb:
    """The same for a verb that waits for the API server, or for other verbs to have their turn."""

    def __init__(
        self, verb: str, answer_call: Callable[[bytes], Awaitable[VerbResponse]], metrics: ExtenderMetrics
    ) -> None:
        self._verb = verb
        self._answer_call = answer_call
        self._seconds = metrics.request_seconds
        self._in_flight = metrics.requests_in_flight.labels(verb)

    async def __call__(self, body: bytes) -> VerbResponse:
        started = time.perf_counter()
        self._in_flight.inc()
        result = "error"
        try:
            answer = await self._answer_call(body)
            result = answer.result
        except Exception:
            log.exception("verb failed verb=%s bytes=%d", self._verb, len(body))
            answer = _build_internal_error(self._verb)
        finally:
            self._in_flight.dec()
            self._seconds.labels(self._verb, result).observe(time.perf_counter() - started)
        return answer


class VerbMiddleware:
    """ASGI middleware: POST to the path of a verb is answered here."""

    def __init__(self, app: ASGIApp, *, verbs: Mapping[str, SyncVerb | AsyncVerb]) -> None:
        self._app = app
        self.verbs = verbs
        """By path."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        decide = self.verbs.get(scope["path"]) if scope["type"] == "http" else None
        if decide is None:
            await self._app(scope, receive, send)
            return
        if scope["method"] != "POST":
            await _send_response(send, NOT_POST, (b"allow", b"POST"))
            return
        body = await _read_body(scope, receive)
        if body is None:
            log.debug("caller hung up path=%s", scope["path"])
        elif len(body) > MAX_BODY_BYTES:
            await _send_response(send, TOO_LARGE)
        else:
            answer = decide(body)
            await _send_response(send, answer if isinstance(answer, VerbResponse) else await answer)


async def _read_body(scope: Scope, receive: Receive) -> bytes | None:
    """The whole body, or as much of it as is too much; None when the caller is gone."""
    announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if announced.isdigit() and int(announced) > MAX_BODY_BYTES:
        return bytes(MAX_BODY_BYTES + 1)
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return body if message["type"] == "http.request" else None
    chunks, size = [body], len(body)
    while message.get("more_body") and size <= MAX_BODY_BYTES:
        message = await receive()
        if message["type"] != "http.request":
            return None
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
    return b"".join(chunks)


async def _send_response(send: Send, answer: VerbResponse, *more: tuple[bytes, bytes]) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer.body)), *more]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def _build_internal_error(verb: str) -> VerbResponse:
    text = "internal error of vrampack; its log has the cause"
    if verb == "filter":
        return VerbResponse(encode_json(FilterResult(error=text)), "error")
    if verb == "bind":
        return VerbResponse(encode_json(BindingResult(f"bind outcome unknown: {text}")), "error")
    return VerbResponse(encode_json({"error": text}), "error", HTTPStatus.INTERNAL_SERVER_ERROR)
