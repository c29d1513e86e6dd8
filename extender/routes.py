"""HTTP: the paths of the service. The verbs are a door ahead of the router; the rest are plain routes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from extender.admission import Reviewer
from extender.door import MAX_BODY_BYTES, Decision, Deliberation, VerbDoor
from extender.ledger import Ledger
from extender.metrics import Metrics, View
from extender.places import Places
from extender.preemption import Preemption
from extender.verbs import Verbs
from extender.wire import encode
from vrampack.cards.inspection import inspection

log = logging.getLogger(__name__)

INSPECT_SLICE = 100
"""Nodes shown before a verb gets its turn: about 5 ms."""
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Service:
    """What the routes need of the running service."""

    verbs: Verbs
    preemption: Preemption
    places: Places
    ledger: Ledger
    metrics: Metrics
    problem: Callable[[], str]
    """Why the service is not ready; empty when it is."""
    view: Callable[[], View]
    version: str


def verbs_app(service: Service, prefix: str) -> VerbDoor:
    """The application of the verbs listener: verbs and inspect under the prefix, health beside them."""
    app = _bare_app()
    app.include_router(_inspect_routes(service), prefix=prefix)
    app.include_router(_health_routes(service))
    return VerbDoor(app, verbs=_decisions(service, prefix))


def health_app(service: Service) -> FastAPI:
    """The application of the health listener: no verb can be reached through it."""
    app = _bare_app()
    app.include_router(_health_routes(service))
    return app


def admission_app(reviewer: Reviewer) -> FastAPI:
    """The application of the admission listener. Whoever reaches it may ask: it answers from the call alone."""
    app = _bare_app()

    @app.post("/mutate")
    async def mutate(request: Request) -> Response:
        answer = reviewer(await request.body())
        return Response(answer.body, answer.status, media_type="application/json")

    return app


def _decisions(service: Service, prefix: str) -> dict[str, Decision | Deliberation]:
    """The verbs, by path."""
    at_once = {"filter": service.verbs.filter, "prioritize": service.verbs.prioritize}
    waiting = {"preempt": service.preemption.preempt, "bind": service.verbs.bind}
    return {f"{prefix}/{verb}": Decision(verb, decide, service.metrics) for verb, decide in at_once.items()} | {
        f"{prefix}/{verb}": Deliberation(verb, decide, service.metrics) for verb, decide in waiting.items()
    }


def _bare_app() -> FastAPI:
    """No generated pages, which would tell strangers what to call, and no redirects to whatever Host a caller names."""
    return FastAPI(
        openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False, max_body_size=MAX_BODY_BYTES
    )


def _inspect_routes(service: Service) -> APIRouter:
    router = APIRouter()

    @router.get("/inspect")
    async def inspect() -> Response:
        nodes = []
        for at, node in enumerate(service.ledger.nodes(), start=1):
            holds = service.ledger.holds(node.name)
            if node.cards or holds or node.problem:
                nodes.append(encode(inspection(node, holds)))
            if at % INSPECT_SLICE == 0:
                await asyncio.sleep(0)
        places = encode(service.places.shown())
        return Response(b'{"nodes":[%b],%b' % (b",".join(nodes), places[1:]), media_type="application/json")

    @router.get("/inspect/{node}")
    async def inspect_one(node: str) -> JSONResponse:
        found = service.ledger.node(node)
        if found is None:
            return JSONResponse({"nodes": [], "error": f"node {node} not found"}, 404)
        return JSONResponse({"nodes": [inspection(found, service.ledger.holds(node))]})

    return router


def _health_routes(service: Service) -> APIRouter:
    router = APIRouter()

    @router.get("/healthz")
    async def healthz() -> PlainTextResponse:
        return PlainTextResponse("ok")

    @router.get("/readyz")
    async def readyz() -> PlainTextResponse:
        problem = service.problem()
        return PlainTextResponse(f"not ready: {problem}", 503) if problem else PlainTextResponse("ok")

    @router.get("/version")
    async def version() -> JSONResponse:
        return JSONResponse({"version": service.version})

    @router.get("/metrics")
    async def metrics() -> Response:
        # Rendering thousands of series takes longer than anything may hold the loop.
        page = await asyncio.to_thread(service.metrics.page, service.view())
        return Response(page, media_type=METRICS_TYPE)

    return router
