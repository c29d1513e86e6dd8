"""Health and metrics over HTTP, for probes and scrapers: `/healthz`, `/readyz`, `/metrics`; `/limits` for people."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from vrampack.agent.metrics import AgentMetrics
from vrampack.agent.status.schema import LimitsStatus
from vrampack.config.addresses import parse_address


@asynccontextmanager
async def serve_status(
    address: str,
    metrics: AgentMetrics,
    find_unready_reason: Callable[[], str],
    build_limits_status: Callable[[], LimitsStatus],
) -> AsyncIterator[None]:
    """Answer on `address` (nowhere when it is empty) inside the block. `not_ready` says why, or nothing.

    Raises `OSError` when the address cannot be listened on.
    """
    app = web.Application()

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        problem = find_unready_reason()
        return web.Response(text=f"{problem or 'ok'}\n", status=503 if problem else 200)

    async def page(_: web.Request) -> web.Response:
        return web.Response(body=metrics.render_page(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def holders(_: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(build_limits_status()), content_type="application/json")

    routes = {"/healthz": healthz, "/readyz": readyz, "/metrics": page, "/limits": holders}
    app.add_routes([web.get(path, answer) for path, answer in routes.items()])
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        if address:
            host, port = parse_address(address)
            await web.TCPSite(runner, host, port).start()
        yield
    finally:
        await runner.cleanup()
