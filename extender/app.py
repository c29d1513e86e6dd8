"""The service, wired together on one page: who gets what, what runs, and how it stops.

    reflectors --> ledger <-- binder <-- verbs <-- routes <-- listeners
                   |    |                  |
             notices    '--room--> kicker <' refusals
                   '--> events
    reloader --another policy--> engine, ledger
    certificates --another pair--> admission listener, where there is one

It starts answering health at once and verbs when both lists are complete. On SIGTERM it says unready, refuses new
binds, waits for those under way, and exits.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from extender.admission import Reviewer
from extender.certificates import Certificates
from extender.events import EventWriter
from extender.ledger import Ledger
from extender.metrics import Metrics, View
from extender.parts import assemble
from extender.reload import Reloader
from extender.routes import Service, admission_app, health_app, verbs_app
from extender.scheduler_config import check_scheduler
from extender.server import Server, listen, make_server
from extender.settings import ExtenderConfiguration
from extender.straight import straight
from extender.surroundings import DeviceClasses
from extender.sync import RESOURCES, Freshness, Recount, Watcher, follow, reflectors
from vrampack.config.errors import SettingsError
from vrampack.kube.client import Api, load_credentials

log = logging.getLogger(__name__)

COLLECT_AFTER = (10_000, 20, 50)
"""Objects, and rounds of younger generations, before garbage is looked for. Nearly all that we make is freed by counting
references; Python's own 700 spent a fifth of a start on walking pods that stay."""


@dataclass(frozen=True, slots=True)
class Options:
    """How the service was started."""

    settings: ExtenderConfiguration
    version: str
    kubeconfig: Path | None = None
    """None: the service account of this pod."""
    context: str | None = None
    scheduler_config: Path | None = None
    """The configuration of the scheduler beside us, to be checked; None: it is not."""
    config: Path | None = None
    """Where the settings were read, to be read again when it changes."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Flags that win over that file."""


class Extender:
    """One running service."""

    def __init__(self, options: Options, api: Api, metrics: Metrics) -> None:
        self._settings = settings = options.settings
        self._metrics = metrics
        self._stopping = asyncio.Event()
        self._events = EventWriter(api, metrics, clock=time.monotonic, now=time.time)
        watcher = Watcher(metrics, self._events)
        self._ledger = Ledger(unit_mib=settings.unit_mib, clock=time.monotonic, report=watcher.notice)
        self._freshness = Freshness(clock=time.monotonic, now=time.time, stale_seconds=settings.deadlines.stale_seconds)
        self._recount = Recount(self._ledger)
        self._device_classes = DeviceClasses(api, metrics, resource=settings.resources.memory)
        self._reflectors = reflectors(api, self._ledger, self._freshness, watcher, metrics, settings)
        self._parts = parts = assemble(
            ledger=self._ledger,
            api=api,
            events=self._events,
            metrics=metrics,
            settings=settings,
            problem=self._problem,
            clock=time.monotonic,
            now_ns=time.time_ns,
        )
        self._service = Service(
            parts.verbs,
            parts.preemption,
            parts.places,
            self._ledger,
            metrics,
            self._problem,
            self._view,
            options.version,
        )
        self._certificates = (
            Certificates(settings.admission, metrics, now=time.time) if settings.listen.admission else None
        )
        self._reloader = None
        if options.config is not None:
            self._reloader = Reloader(
                options.config, options.overrides, settings=settings, metrics=metrics, apply=self._reload
            )

    async def run(self, listeners: dict[str, socket.socket]) -> None:
        """Serve until `stop`. `listeners` has the sockets `verbs` and, if wanted, `health` and `admission`."""
        settings = self._settings
        receive = settings.deadlines.receive_seconds
        verbs = verbs_app(self._service, settings.listen.url_prefix)
        server = make_server(verbs, tls=settings.tls, receive_seconds=receive, protocol=straight(verbs.verbs))
        servers = [(server, listeners["verbs"])]
        if "health" in listeners:
            server = make_server(health_app(self._service), tls=None, receive_seconds=receive)
            servers.append((server, listeners["health"]))
        if self._certificates is not None:
            app = admission_app(Reviewer(settings, self._metrics))
            server = make_server(app, tls=self._certificates.context, receive_seconds=receive)
            servers.append((server, listeners["admission"]))
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(task) for task in self._background()]
            serving = [group.create_task(server.serve(sockets=[at])) for server, at in servers]
            await self._stopping.wait()
            await self._stop([server for server, _ in servers], serving)
            for task in background:
                task.cancel()

    def stop(self) -> None:
        """Begin a clean stop; a second call changes nothing."""
        self._stopping.set()

    def _background(self) -> list[Coroutine[Any, Any, None]]:
        pods, nodes = self._reflectors
        own = [self._events.run(), self._parts.binder.settle_forever(), self._parts.kicker.run(), self._recount.run()]
        if self._reloader is not None:
            own.append(self._reloader.run())
        if self._certificates is not None:
            own.append(self._certificates.run())
        return [follow(pods, nodes, self._freshness), self._tidy(), self._device_classes.run(), *own]

    async def _tidy(self) -> None:
        """Spare the collector the thousands of objects that stay: walking them held a verb up for 60 ms at 20,000 pods."""
        for resource in RESOURCES:
            await self._freshness.listed(resource)
        gc.freeze()

    def _reload(self, settings: ExtenderConfiguration) -> None:
        """Every field of `reload.RELOADABLE` goes to whoever uses it."""
        self._parts.engine.retune(settings.policy)
        self._ledger.policy_changed()

    async def _stop(self, servers: list[Server], serving: list[asyncio.Task[None]]) -> None:
        log.info("stopping")
        await self._parts.binder.drain(self._settings.deadlines.drain_seconds)
        for server in servers:
            server.should_exit = True
        await asyncio.wait(serving)
        log.info("stopped")

    def _problem(self) -> str:
        return "stopping" if self._stopping.is_set() else self._freshness.problem()

    def _view(self) -> View:
        return View(
            nodes=tuple(self._ledger.nodes()),
            pods=tuple(self._ledger.pods()),
            reservations=tuple(self._ledger.reservations()),
            drift_units=dict(self._recount.drift_units),
            heard_at=dict(self._freshness.heard_at),
            is_synced=not self._freshness.problem(),
            now=time.monotonic(),
        )


async def serve(options: Options) -> None:
    """Run the service until SIGTERM or SIGINT.

    Raises `SettingsError` (the scheduler's configuration), `CredentialsError` or `OSError` (a port in use) at the start.
    """
    gc.set_threshold(*COLLECT_AFTER)
    settings = options.settings
    metrics = Metrics(options.version)
    _check_scheduler(options, metrics)
    configuration = await load_credentials(options.kubeconfig, options.context)
    listeners = {"verbs": listen(settings.listen.verbs)}
    if settings.listen.health:
        listeners["health"] = listen(settings.listen.health)
    if settings.listen.admission:
        listeners["admission"] = listen(settings.listen.admission)
    api = Api(configuration, observe=metrics.observe_call, user_agent=f"vrampack-extender/{options.version}")
    try:
        extender = Extender(options, api, metrics)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, extender.stop)
        log.info(
            "serving version=%s verbs=%s health=%s admission=%s prefix=%s policy=%s",
            options.version,
            settings.listen.verbs,
            settings.listen.health or "-",
            settings.listen.admission or "-",
            settings.listen.url_prefix,
            settings.policy.default,
        )
        await extender.run(listeners)
    finally:
        await api.close()


def _check_scheduler(options: Options, metrics: Metrics) -> None:
    path, settings = options.scheduler_config, options.settings
    if path is None:
        log.info("scheduler configuration not checked: give --scheduler-config FILE")
        return
    found = check_scheduler(path, settings, decides_in_filter=settings.decide.may_be_filter)
    fatal = [finding.text for finding in found if finding.is_fatal]
    if fatal:
        raise SettingsError("\n".join(f"{path}: {text}" for text in fatal))
    metrics.scheduler_config_findings.set(len(found))
    for finding in found:
        log.warning("scheduler configuration: %s", finding.text)
