"""Listeners: uvicorn with the deadlines and the connection limits that it lacks.

A scheduler keeps idle connections for 90 s and loses a request if the server closes them first, so ours stay open
longer; but a request that has begun must arrive whole within a deadline, and a crowd of connections locks no client
out (`vrampack/http/open_connections.py`).
"""

from __future__ import annotations

import logging
import ssl

import uvicorn
from starlette.types import ASGIApp

from extender.http.uvicorn_protocol import DeadlineServer, PacedProtocol
from vrampack.http.open_connections import ConnectionLimits, OpenConnections

CALLED_BY_SCHEDULERS = ConnectionLimits(total=512, per_peer=512, keep_alive_seconds=120)
"""A scheduler needs two connections and one per bind under way, and its Go client closes an idle one after 90 s."""
CALLED_BY_PROBES = ConnectionLimits(total=64, per_peer=16, keep_alive_seconds=15)
"""Kubelet opens a new connection for each probe, and so does a scraper that comes less often than this."""


def build_server(
    app: ASGIApp,
    *,
    tls: ssl.SSLContext | None,
    receive_seconds: float,
    limits: ConnectionLimits = CALLED_BY_SCHEDULERS,
    protocol: type[PacedProtocol] = PacedProtocol,
) -> DeadlineServer:
    """A server for `app`; it gets its socket when it starts to serve."""

    class Protocol(protocol):  # type: ignore[misc,valid-type]  # the base is chosen by the caller
        receive_deadline_seconds = receive_seconds
        open_connections = OpenConnections(limits)

    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        # Its start and stop lines say nothing that ours do not, and two listeners would log each of them twice.
        log_level=max(logging.WARNING, logging.getLogger().level),
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=limits.keep_alive_seconds,
        timeout_graceful_shutdown=1,
        ssl_context_factory=None if tls is None else lambda *_: tls,
    )
    server = DeadlineServer(config)
    server.handshake_seconds = receive_seconds
    return server
