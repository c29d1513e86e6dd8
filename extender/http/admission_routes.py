"""The paths of the admission webhook, and how much of a caller's body is read.

Any client that reaches the port may call it, as the answer depends on the call alone. So the cost of a call is bounded, and all large
bodies share one budget: a flood of them is refused while pods of usual size are admitted.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from extender.http.admission_webhook import AdmissionReviewer
from extender.http.request_body import TooLargeBodyError, read_chunks
from extender.metrics import AdmissionMetrics

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 8 * 1024 * 1024
"""An API server takes objects of 3 MiB, and an update sends it before and after."""
SMALL_BODY_BYTES = 128 * 1024
"""Nearly every pod is smaller: such a body is always read."""
MAX_LARGE_BODIES_BYTES = 3 * MAX_BODY_BYTES
"""For all larger bodies that are arriving, together."""
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class TooManyBodiesError(Exception):
    """The large bodies that are arriving have used up their shared budget."""


class BodyReader:
    """Reads the bodies of one listener."""

    def __init__(self) -> None:
        self._held_bytes = 0
        """Bytes of large bodies, until they have been answered."""

    @asynccontextmanager
    async def read_body(self, request: Request) -> AsyncIterator[bytes]:
        """The whole body, counted as held inside the block.

        Raises `TooLargeBodyError`, `TooManyBodiesError`, or `ClientDisconnect` when the caller hangs up.
        """
        body, held = bytearray(), 0
        try:
            async for chunk in read_chunks(request, MAX_BODY_BYTES):
                if len(body) + len(chunk) > SMALL_BODY_BYTES:
                    if self._held_bytes + len(chunk) > MAX_LARGE_BODIES_BYTES:
                        raise TooManyBodiesError
                    held += len(chunk)
                    self._held_bytes += len(chunk)
                body += chunk
            yield bytes(body)
        finally:
            self._held_bytes -= held


def build_admission_app(reviewer: AdmissionReviewer) -> Starlette:
    """The application of the admission listener."""
    reader = BodyReader()

    async def mutate(request: Request) -> Response:
        try:
            async with reader.read_body(request) as body:
                answer = reviewer.review_call(body)
        except ClientDisconnect:
            log.debug("caller hung up")
            return Response(status_code=HTTPStatus.BAD_REQUEST)  # sent to a closed connection
        except TooLargeBodyError:
            text = f"the body is larger than {MAX_BODY_BYTES} bytes"
            return _build_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
        except TooManyBodiesError:
            # An API server retries by itself, within the webhook's `timeoutSeconds`.
            text = f"other bodies of more than {SMALL_BODY_BYTES} bytes are being read"
            return _build_error(HTTPStatus.SERVICE_UNAVAILABLE, text, {"Retry-After": "1"})
        return Response(answer.body, answer.status, media_type="application/json")

    return Starlette(routes=[Route("/mutate", mutate, methods=["POST"])])


def build_admission_health_app(metrics: AdmissionMetrics, version: str, is_ready: Callable[[], bool]) -> Starlette:
    """The application of its health listener."""

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(_: Request) -> Response:
        return PlainTextResponse("ok") if is_ready() else PlainTextResponse("not ready: stopping", 503)

    async def show_version(_: Request) -> Response:
        return Response(msgspec.json.encode({"version": version}), media_type="application/json")

    async def show_metrics(_: Request) -> Response:
        return Response(metrics.render_page(), media_type=METRICS_TYPE)

    routes = {"/healthz": healthz, "/readyz": readyz, "/version": show_version, "/metrics": show_metrics}
    return Starlette(routes=[Route(path, endpoint) for path, endpoint in routes.items()])


def _build_error(status: HTTPStatus, text: str, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode({"error": text}), status, headers, media_type="application/json")
