"""HTTP: the paths of the service. The verbs are a door ahead of the router; the rest are plain routes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from extender.http.admission_webhook import AdmissionReviewer
from extender.http.placements_view import PlacementsView
from extender.http.timed_verbs import MAX_BODY_BYTES, AsyncVerb, SyncVerb, VerbMiddleware
from extender.metrics import ExtenderMetrics
from extender.preemption.preempt import Preemption
from extender.scheduling.verbs import Verbs
from extender.state.collector import LedgerCollector, LedgerSnapshot
from extender.state.ledger import Ledger
from extender.wire.codec import encode_json
from vrampack.cards.inspection import build_inspection

log = logging.getLogger(__name__)

INSPECT_NODES_PER_SLICE = 100
"""Nodes shown before a verb gets its turn: about 5 ms."""
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class RouteDependencies:
    """What the routes need of the running service."""

    verbs: Verbs
    preemption: Preemption
    placements_view: PlacementsView
    ledger: Ledger
    metrics: ExtenderMetrics
    find_unready_reason: Callable[[], str]
    """Why the service is not ready; empty when it is."""
    take_snapshot: Callable[[], LedgerSnapshot]
    version: str


def build_verbs_app(service: RouteDependencies, prefix: str) -> VerbMiddleware:
    """The application of the verbs listener: verbs and inspect under the prefix, health beside them."""
    app = _build_bare_app()
    app.include_router(_inspect_routes(service), prefix=prefix)
    app.include_router(_health_routes(service))
    return VerbMiddleware(app, verbs=_build_verbs(service, prefix))


def build_health_app(service: RouteDependencies) -> FastAPI:
    """The application of the health listener: no verb can be reached through it."""
    app = _build_bare_app()
    app.include_router(_health_routes(service))
    return app


def build_admission_app(reviewer: AdmissionReviewer) -> FastAPI:
    """The application of the admission listener. Whoever reaches it may ask: it answers from the call alone."""
    app = _build_bare_app()

    @app.post("/mutate")
    async def mutate(request: Request) -> Response:
        answer = reviewer(await request.body())
        return Response(answer.body, answer.status, media_type="application/json")

    return app


def _build_verbs(service: RouteDependencies, prefix: str) -> dict[str, SyncVerb | AsyncVerb]:
    """The verbs, by path."""
    at_once = {"filter": service.verbs.filter, "prioritize": service.verbs.prioritize}
    waiting = {"preempt": service.preemption.preempt, "bind": service.verbs.bind}
    return {f"{prefix}/{verb}": SyncVerb(verb, decide, service.metrics) for verb, decide in at_once.items()} | {
        f"{prefix}/{verb}": AsyncVerb(verb, decide, service.metrics) for verb, decide in waiting.items()
    }


def _build_bare_app() -> FastAPI:
    """No generated pages, which would tell strangers what to call, and no redirects to whatever Host a caller names."""
    return FastAPI(
        openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False, max_body_size=MAX_BODY_BYTES
    )


def _inspect_routes(service: RouteDependencies) -> APIRouter:
    router = APIRouter()

    @router.get("/inspect")
    async def inspect() -> Response:
        nodes = []
        for at, node in enumerate(service.ledger.list_nodes(), start=1):
            holds = service.ledger.list_holds(node.name)
            if node.cards or holds or node.problem:
                nodes.append(encode_json(build_inspection(node, holds)))
            if at % INSPECT_NODES_PER_SLICE == 0:
                await asyncio.sleep(0)
        places = encode_json(service.placements_view.build_json())
        return Response(b'{"nodes":[%b],%b' % (b",".join(nodes), places[1:]), media_type="application/json")

    @router.get("/inspect/{node}")
    async def inspect_one(node: str) -> JSONResponse:
        found = service.ledger.get_node(node)
        if found is None:
            return JSONResponse({"nodes": [], "error": f"node {node} not found"}, 404)
        return JSONResponse({"nodes": [build_inspection(found, service.ledger.list_holds(node))]})

    return router


def _health_routes(service: RouteDependencies) -> APIRouter:
    router = APIRouter()

    @router.get("/healthz")
    async def healthz() -> PlainTextResponse:
        return PlainTextResponse("ok")

    @router.get("/readyz")
    async def readyz() -> PlainTextResponse:
        problem = service.find_unready_reason()
        return PlainTextResponse(f"not ready: {problem}", 503) if problem else PlainTextResponse("ok")

    @router.get("/version")
    async def version() -> JSONResponse:
        return JSONResponse({"version": service.version})

    @router.get("/metrics")
    async def metrics() -> Response:
        # Rendering thousands of series takes longer than anything may hold the loop.
        page = await asyncio.to_thread(service.metrics.render_page, LedgerCollector(service.take_snapshot()))
        return Response(page, media_type=METRICS_TYPE)

    return router
