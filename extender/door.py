"""The verbs, ahead of the router: read, decided and answered without a layer between.

A route costs more than the decision it carries (81 us against 28 us around an empty verb), and a scheduler waits for
each of them. So the verbs are a middleware of the application: their requests end here, all others go on to its routes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from starlette.types import ASGIApp, Receive, Scope, Send

from extender.metrics import Metrics
from extender.verbs import Answer
from extender.wire import BindingResult, FilterResult, encode

log = logging.getLogger(__name__)

Decide = Callable[[bytes], Answer | Awaitable[Answer]]

MAX_BODY_BYTES = 8 * 1024 * 1024
"""Names of 15,000 nodes are 0.4 MB; whole Node objects are refused anyway."""
TOO_LARGE = Answer(
    encode({"error": f"the body is larger than {MAX_BODY_BYTES} bytes"}), "error", HTTPStatus.REQUEST_ENTITY_TOO_LARGE
)


NOT_A_POST = Answer(encode({"error": "a verb is called by POST"}), "error", HTTPStatus.METHOD_NOT_ALLOWED)


class VerbDoor:
    """ASGI middleware: POST to a verb's path is answered here."""

    def __init__(self, app: ASGIApp, *, verbs: Mapping[str, Decide], metrics: Metrics, prefix: str) -> None:
        self._app = app
        self._metrics = metrics
        self._verbs = {f"{prefix}/{verb}": (verb, decide) for verb, decide in verbs.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._verbs.get(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        if scope["method"] != "POST":
            await _send(send, NOT_A_POST, (b"allow", b"POST"))
            return
        verb, decide = found
        body = await _body(scope, receive)
        if body is None:
            log.debug("caller hung up verb=%s", verb)
        else:
            await _send(send, TOO_LARGE if len(body) > MAX_BODY_BYTES else await self._answer(verb, decide, body))

    async def _answer(self, verb: str, decide: Decide, body: bytes) -> Answer:
        started = time.perf_counter()
        in_flight = self._metrics.in_flight.labels(verb)
        in_flight.inc()
        result = "error"
        try:
            decided = decide(body)
            answer = decided if isinstance(decided, Answer) else await decided
            result = answer.result
        except Exception:
            # The top of this request: a fault of ours must reach the scheduler as a text, not as a dropped connection.
            log.exception("verb failed verb=%s bytes=%d", verb, len(body))
            answer = _broken(verb)
        finally:
            in_flight.dec()
            self._metrics.request_seconds.labels(verb, result).observe(time.perf_counter() - started)
        return answer


async def _body(scope: Scope, receive: Receive) -> bytes | None:
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


async def _send(send: Send, answer: Answer, *more: tuple[bytes, bytes]) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer.body)), *more]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def _broken(verb: str) -> Answer:
    text = "internal error of vrampack; its log has the cause"
    if verb == "filter":
        return Answer(encode(FilterResult(error=text)), "error")
    if verb == "bind":
        return Answer(encode(BindingResult(f"bind outcome unknown: {text}")), "error")
    return Answer(encode({"error": text}), "error", HTTPStatus.INTERNAL_SERVER_ERROR)
