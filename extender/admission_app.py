"""The admission webhook as a program of its own, wired together on one page.

    cert watcher --new pair--> admission listener --> reviewer
                                   health listener --> metrics

It shares only the image with the extender: a body from any client costs this process time and memory, and
delays no verb. It does not call the API server and needs no account.

On SIGTERM it reports that it is not ready, and keeps answering until Services have noticed.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time

from extender.admission_settings import AdmissionWebhookConfiguration
from extender.http.admission_routes import build_admission_app, build_admission_health_app
from extender.http.admission_webhook import AdmissionReviewer
from extender.http.cert_watcher import CertWatcher
from extender.http.server import CALLED_BY_PROBES, build_server
from extender.http.uvicorn_protocol import DeadlineServer
from extender.metrics import AdmissionMetrics
from vrampack.cards.env_injection import InjectionNames
from vrampack.config.addresses import parse_address
from vrampack.http.listener import open_listener
from vrampack.http.open_connections import ConnectionLimits

log = logging.getLogger(__name__)

CALLED_BY_API_SERVERS = ConnectionLimits(total=256, per_peer=128, keep_alive_seconds=120)
"""One connection per pod being created; an API server's Go client closes an idle one after 90 s."""


class AdmissionWebhook:
    """One running webhook. Raises `SettingsError` when its TLS files cannot be used."""

    def __init__(self, settings: AdmissionWebhookConfiguration, version: str) -> None:
        self._settings = settings
        self._version = version
        self._metrics = AdmissionMetrics(version)
        self._stopping = asyncio.Event()
        self._cert_watcher = CertWatcher("admission", settings.tls, self._metrics.certificates, now=time.time)

    async def run(self, listeners: dict[str, socket.socket]) -> None:
        """Serve until `stop`. `listeners` has the sockets `admission` and, if wanted, `health`."""
        servers = [(self._build_admission_server(), listeners["admission"])]
        if "health" in listeners:
            servers.append((self._build_health_server(), listeners["health"]))
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._cert_watcher.run())
            serving = [group.create_task(server.serve(sockets=[listener])) for server, listener in servers]
            await self._stopping.wait()
            log.info("stopping")
            await asyncio.sleep(self._settings.deadlines.drain_seconds)
            for server, _ in servers:
                server.should_exit = True
            await asyncio.wait(serving)
            watching.cancel()
            log.info("stopped")

    def stop(self) -> None:
        """Begin a clean stop; a second call changes nothing."""
        self._stopping.set()

    def _build_admission_server(self) -> DeadlineServer:
        names = InjectionNames(self._settings.resources.memory, self._settings.scheduler_name)
        return build_server(
            build_admission_app(AdmissionReviewer(names, self._metrics)),
            tls=self._cert_watcher.context,
            receive_seconds=self._settings.deadlines.receive_seconds,
            limits=CALLED_BY_API_SERVERS,
        )

    def _build_health_server(self) -> DeadlineServer:
        app = build_admission_health_app(self._metrics, self._version, lambda: not self._stopping.is_set())
        receive_seconds = self._settings.deadlines.receive_seconds
        return build_server(app, tls=None, receive_seconds=receive_seconds, limits=CALLED_BY_PROBES)


async def run_admission_webhook(settings: AdmissionWebhookConfiguration, version: str) -> None:
    """Run the webhook until SIGTERM or SIGINT. Raises `SettingsError` (unusable TLS files) or `OSError` (a port in use) at the start."""
    webhook = AdmissionWebhook(settings, version)
    listeners = {"admission": open_listener(*parse_address(settings.listen.admission))}
    if settings.listen.health:
        listeners["health"] = open_listener(*parse_address(settings.listen.health))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, webhook.stop)
    log.info(
        "serving version=%s admission=%s health=%s scheduler=%s client_certificates=%s",
        version,
        settings.listen.admission,
        settings.listen.health or "-",
        settings.scheduler_name or "-",
        "required" if settings.tls.client_ca_file else "not asked for",
    )
    await webhook.run(listeners)
