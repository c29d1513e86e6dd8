"""The agent's pages: `/healthz` and `/readyz` for probes, `/metrics` for scrapers, `/limits` for root on the node.

listen.health          /healthz /readyz, and /metrics while metrics.address is empty
metrics.address        /metrics, optionally with TLS, and only for tokens that RBAC allows
listen.status_socket   /limits: a unix socket, since it names processes and pods of all tenants
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST

from vrampack.agent.limits.unix_listener import UnixListener
from vrampack.agent.metrics import AgentMetrics
from vrampack.agent.settings import AgentConfiguration
from vrampack.agent.status.bounded_server import (
    AnswerRequest,
    BoundedServer,
    StatusAnswer,
    StatusRequest,
    explain_status,
)
from vrampack.agent.status.metrics_access import MetricsAccess
from vrampack.agent.status.schema import LimitsStatus
from vrampack.config.addresses import parse_address
from vrampack.http.listener import open_listener
from vrampack.http.tls_reloader import TlsReloader

log = logging.getLogger(__name__)

METRICS_PATH = "/metrics"
LIMITS_PATH = "/limits"
PAGE_SECONDS = 0.05
"""How long a metrics page is served again: rendering one blocks the event loop for milliseconds."""
_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class StatusPages:
    """Where the pages come from. `find_unready_reason` says why the agent is not ready; empty when it is."""

    metrics: AgentMetrics
    find_unready_reason: Callable[[], str]
    build_limits_status: Callable[[], LimitsStatus]


@asynccontextmanager
async def serve_status(
    settings: AgentConfiguration, pages: StatusPages, *, metrics_access: MetricsAccess | None = None
) -> AsyncIterator[None]:
    """Answer inside the block. Without `metrics_access`, `/metrics` needs no token.

    Raises `OSError` when it cannot listen on an address, or a certificate cannot be read.
    """
    health: dict[str, AnswerRequest] = {
        "/healthz": _Health(lambda: ""),
        "/readyz": _Health(pages.find_unready_reason),
    }
    metrics: dict[str, AnswerRequest] = {METRICS_PATH: _MetricsPage(pages.metrics, metrics_access)}
    own = settings.metrics
    reloader = None if own.tls.cert_file is None else TlsReloader("metrics", own.tls)
    with ExitStack() as sockets:
        servers = list[BoundedServer]()
        if own.address:
            listener = sockets.enter_context(open_listener(*parse_address(own.address), backlog=_BACKLOG))
            servers.append(
                BoundedServer(listener, _Router(metrics), tls=None if reloader is None else reloader.context)
            )
        if settings.listen.health:
            listener = sockets.enter_context(open_listener(*parse_address(settings.listen.health), backlog=_BACKLOG))
            servers.append(BoundedServer(listener, _Router(health if own.address else health | metrics)))
        if status_socket := sockets.enter_context(_open_status_socket(settings.listen.status_socket)):
            limits: dict[str, AnswerRequest] = {LIMITS_PATH: _LimitsPage(pages.build_limits_status)}
            servers.append(BoundedServer(status_socket, _Router(limits)))
        running = [asyncio.create_task(server.run()) for server in servers]
        if reloader is not None:
            running.append(asyncio.create_task(reloader.run()))
        try:
            yield
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Router:
    routes: Mapping[str, AnswerRequest]

    async def __call__(self, request: StatusRequest) -> StatusAnswer:
        answer = self.routes.get(request.path)
        return explain_status(HTTPStatus.NOT_FOUND) if answer is None else await answer(request)


@dataclass(frozen=True, slots=True)
class _Health:
    find_problem: Callable[[], str]

    async def __call__(self, _: StatusRequest) -> StatusAnswer:
        problem = self.find_problem()
        return explain_status(HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK, problem or "ok")


@dataclass(slots=True)
class _MetricsPage:
    metrics: AgentMetrics
    access: MetricsAccess | None
    page: bytes = b""
    made_at: float = -PAGE_SECONDS

    async def __call__(self, request: StatusRequest) -> StatusAnswer:
        if self.access is not None:
            status = await self.access.check_caller(request.headers.get(b"authorization", b""), peer=request.peer)
            if status is not HTTPStatus.OK:
                return explain_status(status)
        if time.monotonic() - self.made_at >= PAGE_SECONDS:
            self.page = self.metrics.render_page()
            self.made_at = time.monotonic()
        return StatusAnswer(HTTPStatus.OK, self.page, CONTENT_TYPE_LATEST)


@dataclass(frozen=True, slots=True)
class _LimitsPage:
    build_status: Callable[[], LimitsStatus]

    async def __call__(self, _: StatusRequest) -> StatusAnswer:
        return StatusAnswer(HTTPStatus.OK, msgspec.json.encode(self.build_status()), "application/json")


@contextmanager
def _open_status_socket(path: str) -> Iterator[socket.socket | None]:
    """The socket; None if it is switched off or cannot be created: only people read it, so a failure does not stop the agent."""
    if not path:
        yield None
        return
    name = UnixListener(Path(path))
    listener = None
    try:
        Path(path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        listener = name.bind_socket(socket.SOCK_STREAM, mode=0o600)
        listener.listen(_BACKLOG)
        name.publish_socket()
    except OSError as error:
        log.warning("limits not shown listen.status_socket=%s error=%s", path, error)
        if listener is not None:
            listener.close()
        listener = None
    try:
        yield listener
    finally:
        if listener is not None:
            listener.close()
            name.remove_socket()
