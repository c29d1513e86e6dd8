"""HTTP: the paths of the service.

Usual calls of a verb are answered by `VerbProtocol` before they get here; the routes of the verbs answer the others
(a request behind another one, an `Expect`, `Connection: close`) with the same bytes.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from http import HTTPStatus

from fastapi import APIRouter, FastAPI, HTTPException, Request, Response
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.requests import ClientDisconnect

from extender.http.explain_view import ExplainView, UnknownSubjectError
from extender.http.placements_view import PlacementsView
from extender.http.request_body import TooLargeBodyError, read_chunks
from extender.http.timed_verbs import MAX_BODY_BYTES, NOT_POST, TOO_LARGE, AsyncVerb, SyncVerb, TimedVerbs
from extender.metrics import ExtenderMetrics
from extender.scheduling.pod_generations import PodGenerations
from extender.state.collector import LedgerCollector, SnapshotTaker
from extender.state.ledger import Ledger
from extender.state.sync import ReadinessCheck
from extender.state.usage_leases import UsageLeases
from extender.wire.codec import GENERATION_HEADER, VerbResponse, encode_json
from vrampack.cards.inspection import build_inspection

log = logging.getLogger(__name__)

INSPECT_NODES_PER_SLICE = 100
"""Nodes rendered before a verb gets its turn: about 5 ms."""
EXPLAIN_NODES_PER_SLICE = 25
"""The same for explained nodes: about 3 ms."""
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class RouteDependencies:
    """What the routes need from the running service."""

    timed_verbs: TimedVerbs
    placements_view: PlacementsView
    explain_view: ExplainView
    ledger: Ledger
    metrics: ExtenderMetrics
    readiness: ReadinessCheck
    snapshot_taker: SnapshotTaker
    version: str
    generations: PodGenerations
    usage_leases: UsageLeases


def build_verbs_app(service: RouteDependencies, prefix: str) -> FastAPI:
    """The application of the verbs listener: verbs and inspect under the prefix, health beside them."""
    # Not the framework's limit: it answers in plain text, and only the verbs read a body.
    app = _build_bare_app(max_body_bytes=None)
    app.include_router(_verb_routes(service.timed_verbs), prefix=prefix)
    app.include_router(_inspect_routes(service), prefix=prefix)
    app.include_router(_explain_routes(service), prefix=prefix)
    app.include_router(_health_routes(service))
    verb_paths = service.timed_verbs.map_paths(prefix).keys()

    @app.exception_handler(HTTPStatus.METHOD_NOT_ALLOWED)
    async def refuse_method(request: Request, error: HTTPException) -> Response:
        if request.scope["path"] in verb_paths:
            return _to_http_response(NOT_POST, {"Allow": "POST"})
        return await http_exception_handler(request, error)

    return _complete_app(app)


def build_health_app(service: RouteDependencies) -> FastAPI:
    """The application of the health listener: no verb can be reached through it."""
    app = _build_bare_app(max_body_bytes=MAX_BODY_BYTES)
    app.include_router(_health_routes(service))
    return _complete_app(app)


def _build_bare_app(*, max_body_bytes: int | None) -> FastAPI:
    """An app without generated pages, which tell strangers what to call, or redirects to the Host that a caller names."""
    return FastAPI(
        openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False, max_body_size=max_body_bytes
    )


def _complete_app(app: FastAPI) -> FastAPI:
    """Prepare its routes now: otherwise the first request would, and hold the loop for 10 ms."""
    app.middleware_stack = app.build_middleware_stack()
    return app


def _verb_routes(verbs: TimedVerbs) -> APIRouter:
    router = APIRouter()

    @router.post("/filter")
    async def filter_nodes(request: Request) -> Response:
        return await _answer_verb(verbs.filter, request)

    @router.post("/prioritize")
    async def prioritize_nodes(request: Request) -> Response:
        return await _answer_verb(verbs.prioritize, request)

    @router.post("/preempt")
    async def preempt_pods(request: Request) -> Response:
        return await _answer_verb(verbs.preempt, request)

    @router.post("/bind")
    async def bind_pod(request: Request) -> Response:
        return await _answer_verb(verbs.bind, request)

    return router


async def _answer_verb(verb: SyncVerb | AsyncVerb, request: Request) -> Response:
    try:
        body = b"".join([chunk async for chunk in read_chunks(request, MAX_BODY_BYTES)])
    except TooLargeBodyError:
        return _to_http_response(TOO_LARGE)
    except ClientDisconnect:
        log.debug("caller hung up verb=%s", verb.name)
        return Response(status_code=HTTPStatus.BAD_REQUEST)  # sent to a closed connection
    answer = verb.answer_call(body)
    return _to_http_response(answer if isinstance(answer, VerbResponse) else await answer)


def _to_http_response(answer: VerbResponse, headers: dict[str, str] | None = None) -> Response:
    if answer.generation:
        headers = {**(headers or {}), GENERATION_HEADER: str(answer.generation)}
    return Response(answer.body, answer.status, headers, media_type="application/json")


def _inspect_routes(service: RouteDependencies) -> APIRouter:
    router = APIRouter()

    @router.get("/inspect")
    async def inspect() -> Response:
        nodes = []
        for at, node in enumerate(service.ledger.list_nodes(), start=1):
            holds = service.ledger.list_holds(node.name)
            if node.cards or holds or node.problem:
                nodes.append(encode_json(build_inspection(node, holds, service.usage_leases.get_usage(node.name))))
            if at % INSPECT_NODES_PER_SLICE == 0:
                await asyncio.sleep(0)
        placements = encode_json(service.placements_view.build_json())
        return Response(b'{"nodes":[%b],%b' % (b",".join(nodes), placements[1:]), media_type="application/json")

    @router.get("/inspect/{node}")
    async def inspect_one(node: str) -> JSONResponse:
        found = service.ledger.get_node(node)
        if found is None:
            return JSONResponse({"nodes": [], "error": f"node {node} not found"}, 404)
        holds, usage = service.ledger.list_holds(node), service.usage_leases.get_usage(node)
        return JSONResponse({"nodes": [build_inspection(found, holds, usage)]})

    return router


def _explain_routes(service: RouteDependencies) -> APIRouter:
    router = APIRouter()

    @router.get("/explain")
    async def explain(request: Request) -> Response:
        view = service.explain_view
        try:
            pod = view.find_subject(request.query_params)
        except UnknownSubjectError as error:
            return JSONResponse({"error": str(error)}, 404 if "pod" in request.query_params else 400)
        pod_request = pod.request
        if pod_request is None or (problem := service.ledger.in_force.find_unready_reason(pod.namespace)):
            return JSONResponse({"error": f"not ready: {problem}"}, 503)
        described = encode_json(view.describe_request(pod, pod_request))
        nodes = []
        for at, node in enumerate(view.describe_nodes(pod, pod_request), start=1):
            nodes.append(encode_json(node))
            if at % EXPLAIN_NODES_PER_SLICE == 0:
                await asyncio.sleep(0)
        return Response(b'%b,"nodes":[%b]}' % (described[:-1], b",".join(nodes)), media_type="application/json")

    return router


def _health_routes(service: RouteDependencies) -> APIRouter:
    router = APIRouter()

    @router.get("/healthz")
    async def healthz() -> PlainTextResponse:
        return PlainTextResponse("ok")

    @router.get("/readyz")
    async def readyz() -> PlainTextResponse:
        problem = service.readiness.find_unready_reason()
        return PlainTextResponse(f"not ready: {problem}", 503) if problem else PlainTextResponse("ok")

    @router.get("/version")
    async def version() -> JSONResponse:
        return JSONResponse({"version": service.version, "configGeneration": service.generations.current})

    @router.get("/metrics")
    async def metrics() -> Response:
        snapshot = await service.snapshot_taker.take_snapshot()
        # To find out why all these pods wait takes longer than anything may hold the loop.
        page = await asyncio.to_thread(service.metrics.render_page, LedgerCollector(snapshot))
        return Response(page + snapshot.node_text, media_type=METRICS_TYPE)

    return router
