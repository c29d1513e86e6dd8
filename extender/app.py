"""The service, wired together on one page: who gets what, what runs, and how it stops.

    reflectors --> sinks --> ledger <-- binder <-- verbs <-- routes, protocol <-- listeners
                               |                     |
                        LedgerReactions              |
                          |         '--> activator <-' rejections
                          '--> problem reporter --> events
    config reloader --new policy--> engine, ledger
    cert watcher --new pair--> verbs listener, where it has TLS

It answers health checks at once, and verbs when both lists are complete. On SIGTERM it reports that it is not ready, refuses
new binds, waits for those in flight, and exits.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extender.autoscaling.autoscaling import LEASE_NAME, Autoscaling
from extender.checks.device_classes import DeviceClassCheck
from extender.checks.scheduler_config import check_scheduler_config
from extender.components import INSTALLATION_NAMESPACE, build_components, build_lease
from extender.config_reloader import NO_FILES, ConfigReloader, ConfigurationEvents, ConfigurationSource
from extender.events import EventReason, ExtenderEventRecorder
from extender.eviction.refused_pod_evictor import RefusedPodEvictor
from extender.garbage_collection import STARTING_THRESHOLDS, collect_garbage, freeze_objects
from extender.http.cert_watcher import CertWatcher
from extender.http.protocol import build_protocol
from extender.http.routes import RouteDependencies, build_health_app, build_verbs_app
from extender.http.server import CALLED_BY_PROBES, CALLED_BY_SCHEDULERS, build_server
from extender.http.uvicorn_protocol import DeadlineServer
from extender.metrics import ExtenderMetrics
from extender.settings import ExtenderConfiguration
from extender.state.binding_writers import BindingWriters
from extender.state.collector import SnapshotTaker
from extender.state.denied_calls import DeniedCalls
from extender.state.host_usage import HostUsage
from extender.state.ledger import Ledger
from extender.state.namespaces import NamespaceWatcher
from extender.state.node_labels import NodeLabels
from extender.state.placement_change import apply_placement
from extender.state.pod_groups import PodGroupWatcher
from extender.state.reported_refusals import ReportedRefusals
from extender.state.sync import (
    RESOURCES,
    DriftCheck,
    Freshness,
    ProblemReporter,
    ReadinessCheck,
    build_reflectors,
    run_reflectors,
)
from extender.state.usage_leases import UsageLeases
from vrampack.cards.payment import find_unpaid_use
from vrampack.cards.pod import Pod
from vrampack.config.addresses import parse_address
from vrampack.config.errors import SettingsError
from vrampack.http.listener import open_listener
from vrampack.kube.client import Api
from vrampack.kube.credentials import load_credentials
from vrampack.kube.objects import LeaseObject
from vrampack.kube.reflector import Reflector

log = logging.getLogger(__name__)

NAMESPACES_LIST_SECONDS = 15.0
"""For the first list of namespaces after the file changed: a few pages."""
THREAD_SWITCH_SECONDS = 0.0005
"""How long the loop waits, each time it wakes, for a thread that renders a scrape. A call wakes it several times, and with
Python's default of 5 ms each wait took longer than the verb."""


@dataclass(frozen=True, slots=True)
class ExtenderOptions:
    """How the service was started."""

    settings: ExtenderConfiguration
    version: str
    kubeconfig: Path | None = None
    """None: the service account of this pod."""
    context: str | None = None
    scheduler_config: Path | None = None
    """The scheduler configuration to check; None: no check."""
    source: ConfigurationSource = NO_FILES
    """Where the settings come from; the service watches its files while it runs."""
    pod: Pod | None = None
    """The pod that the service runs in, which gets the events about the configuration file; None: no events."""


class Extender:
    """One running service."""

    def __init__(self, options: ExtenderOptions, api: Api, metrics: ExtenderMetrics) -> None:
        self._settings = settings = options.settings
        self._metrics = metrics
        self._stopping = asyncio.Event()
        self._started_at = time.monotonic()
        self._own_pod = options.pod
        self._unpaid_use = ""
        """Of `find_unpaid_use`, at the start."""
        self._events = ExtenderEventRecorder(api, metrics, clock=time.monotonic, now=time.time)
        reporter = ProblemReporter(metrics, self._events)
        self._ledger = Ledger(unit_mib=settings.unit_mib, clock=time.monotonic, placement=settings.build_placement())
        self._namespaces = NamespaceWatcher(api, self._ledger, metrics)
        self._freshness = Freshness(clock=time.monotonic, now=time.time, stale_seconds=settings.deadlines.stale_seconds)
        self._denied_calls = DeniedCalls(api, metrics, time.monotonic)
        self._readiness = ReadinessCheck(self._freshness, self._denied_calls)
        self._readiness.mark_preparing()
        self._drift_check = DriftCheck(self._ledger)
        self._device_classes = DeviceClassCheck(api, metrics, resource=settings.resources.memory)
        self._hosts = HostUsage(is_kept=settings.select_policies().reads_hosts)
        refusals = ReportedRefusals(time.monotonic)
        lease_namespace = INSTALLATION_NAMESPACE if options.pod is None else options.pod.namespace
        self._autoscaling_lease = build_lease(
            api, lease_namespace, LEASE_NAME, clock=time.monotonic, now_ns=time.time_ns
        )
        self._autoscaling = Autoscaling(
            self._ledger,
            api,
            self._events,
            metrics,
            lease=self._autoscaling_lease,
            readiness=self._readiness,
            settings=settings,
            clock=time.monotonic,
            cpu_clock=time.thread_time,
            now=time.time,
        )
        node_labels = NodeLabels()
        self._reflectors = build_reflectors(
            api,
            self._ledger,
            self._freshness,
            reporter,
            metrics,
            settings,
            hosts=self._hosts,
            refusals=refusals,
            writers=BindingWriters(self._ledger, self._events, metrics, options.pod, clock=time.monotonic),
            pod_watchers=self._autoscaling.pod_watchers,
            node_watchers=(self._autoscaling, node_labels),
        )
        self._usage_leases = UsageLeases(metrics, clock=time.monotonic)
        self._api = api
        self._components = build_components(
            ledger=self._ledger,
            api=api,
            events=self._events,
            reporter=reporter,
            metrics=metrics,
            settings=settings,
            readiness=self._readiness,
            clock=time.monotonic,
            now_ns=time.time_ns,
            hosts=self._hosts,
            node_labels=node_labels,
            lease_namespace=lease_namespace,
        )
        self._evictor = RefusedPodEvictor(
            refusals,
            self._ledger,
            api,
            self._events,
            metrics,
            readiness=self._readiness,
            is_called=self._components.activator.is_called,
            clock=time.monotonic,
            after_seconds=settings.refused.evict_after_seconds,
        )
        self._service = RouteDependencies(
            self._components.timed_verbs,
            self._components.placements_view,
            self._components.explain_view,
            self._ledger,
            metrics,
            self._readiness,
            SnapshotTaker(
                self._ledger,
                self._components.engine,
                self._freshness,
                self._drift_check,
                clock=time.monotonic,
                measure_overdue_seconds=self._components.activator.measure_overdue_seconds,
            ),
            options.version,
            self._components.generations,
            self._usage_leases,
        )
        self._cert_watcher = (
            CertWatcher("verbs", settings.tls, metrics.certificates, now=time.time) if settings.tls.cert_file else None
        )
        self._config_reloader = None
        if options.source.paths:
            self._config_reloader = ConfigReloader(
                options.source,
                settings=settings,
                metrics=metrics,
                listener=self,
                events=ConfigurationEvents(self._events, options.pod),
            )

    async def run(self, listeners: dict[str, socket.socket]) -> None:
        """Serve until `stop`. `listeners` has the sockets `verbs` and, if wanted, `health`."""
        servers = [(self._build_verbs_server(), listeners["verbs"])]
        receive_seconds = self._settings.deadlines.receive_seconds
        if "health" in listeners:
            app = build_health_app(self._service)
            server = build_server(app, tls=None, receive_seconds=receive_seconds, limits=CALLED_BY_PROBES)
            servers.append((server, listeners["health"]))
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(task) for task in self._build_background_tasks()]
            serving = [group.create_task(server.serve(sockets=[listener])) for server, listener in servers]
            await self._stopping.wait()
            await self._stop([server for server, _ in servers], serving)
            for task in background:
                task.cancel()

    def stop(self) -> None:
        """Begin a clean stop; a second call changes nothing."""
        self._readiness.mark_stopping()
        self._stopping.set()

    async def on_settings_changed(self, settings: ExtenderConfiguration) -> None:
        settings = settings.settle_whole_cards(self._unpaid_use)
        keys = settings.build_placement().list_namespace_label_keys()
        namespaces = await self._namespaces.watch_labels(keys, timeout_seconds=NAMESPACES_LIST_SECONDS)
        await self._components.apply_settings(settings, namespaces, self._reflectors)
        self._namespaces.end_unused(keys)

    def _build_verbs_server(self) -> DeadlineServer:
        prefix = self._settings.listen.url_prefix
        return build_server(
            build_verbs_app(self._service, prefix),
            tls=None if self._cert_watcher is None else self._cert_watcher.context,
            receive_seconds=self._settings.deadlines.receive_seconds,
            limits=CALLED_BY_SCHEDULERS,
            protocol=build_protocol(self._components.timed_verbs.map_paths(prefix)),
        )

    def _build_background_tasks(self) -> list[Coroutine[Any, Any, None]]:
        pods, nodes = self._reflectors
        keep_running = self._components.cache_rebuild.keep_running
        tasks = [
            self._events.run(),
            self._components.binder.run(),
            self._components.places.run(),
            keep_running("activator", self._components.activator.run),
            self._evictor.run(),
            keep_running("autoscaling", self._autoscaling.run),
            self._autoscaling_lease.run(is_wanted=self._autoscaling.needs_lease),
            keep_running("answers", self._components.answers.run),
            keep_running("shadow", self._components.shadow_judge.run),
            self._denied_calls.run(),
            PodGroupWatcher(self._api, self._components.groups, self._metrics).run(),
            self._drift_check.run(),
        ]
        by_card = self._settings.preemption.by_card
        if by_card != "never":
            tasks.append(keep_running("preemption", self._components.card_preemptor.run))
        if by_card == "act":
            tasks.append(self._components.preemption_lease.run(is_wanted=self._components.card_preemptor.needs_lease))
        if namespace := self._settings.usage_leases.namespace:
            tasks.append(Reflector(self._api, "leases", LeaseObject, self._usage_leases, namespace=namespace).run())
        if self._cert_watcher is not None:
            tasks.append(self._cert_watcher.run())
        return [
            run_reflectors(pods, nodes, self._freshness),
            self._follow_ledger(),
            self._device_classes.run(),
            self._namespaces.run(),
            *tasks,
        ]

    async def _follow_ledger(self) -> None:
        """Once both lists are complete, summarize the nodes in slices: the first filter took 0.2 s for 5,000 of them.

        The service is ready afterwards. Not earlier: each page of the lists changes most nodes again.
        """
        for resource in RESOURCES:
            await self._freshness.wait_until_listed(resource)
        await self._settle_whole_cards()
        await self._read_namespaces()
        await self._await_earlier_bindings()
        keep_running = self._components.cache_rebuild.keep_running
        await keep_running("follower", self._components.engine_follower.catch_up)
        self._components.places.restore_holds(self._components.engine)
        freeze_objects()
        self._readiness.mark_prepared()
        async with asyncio.TaskGroup() as group:
            group.create_task(collect_garbage())
            group.create_task(keep_running("follower", self._components.engine_follower.run))
            group.create_task(keep_running("mix", self._components.mix_learner.run))
            if self._config_reloader is not None:
                # Not earlier: what was read at the start would replace the rules of a file that changed meanwhile.
                group.create_task(keep_running("reload", self._config_reloader.run))

    async def _settle_whole_cards(self) -> None:
        """Where the settings leave it open, running pods decide whether whole cards are paid for: an upgrade must not stop them."""
        self._unpaid_use = find_unpaid_use(self._ledger.list_pods())
        settled = self._settings.settle_whole_cards(self._unpaid_use)
        if settled is self._settings:
            return
        self._settings = settled
        await apply_placement(self._ledger, settled.build_placement())
        text = (
            f"rules.whole_cards is not set, and {self._unpaid_use}: a pod gets whole cards without asking for all of their "
            "units, and quotas count less than it holds. Set it to paid or as-requested"
        )
        log.warning("whole cards as requested reason=%r", text)
        if self._own_pod is not None:
            self._events.record_changing_event(
                self._own_pod, EventReason.WHOLE_CARDS_AS_REQUESTED, text, is_warning=True
            )

    async def _read_namespaces(self) -> None:
        placement = self._settings.build_placement()
        if keys := placement.list_namespace_label_keys():
            self._readiness.mark_preparing(
                "the list of namespaces, whose labels rules or profiles need, is not complete yet"
            )
            namespaces = await self._namespaces.watch_labels(keys, timeout_seconds=None)
            await apply_placement(self._ledger, placement, namespaces)
            self._readiness.mark_preparing()

    async def _await_earlier_bindings(self) -> None:
        """A Binding that a killed process sent may land after the lists; the watch shows it before any place is given away."""
        seconds = self._settings.deadlines.ready_after_seconds
        remaining = self._started_at + seconds - time.monotonic()
        if remaining > 0:
            self._readiness.mark_preparing(
                f"Bindings of an earlier process may land until {seconds:g} s after the start"
            )
            await asyncio.sleep(remaining)
            self._readiness.mark_preparing()

    async def _stop(self, servers: list[DeadlineServer], serving: list[asyncio.Task[None]]) -> None:
        log.info("stopping")
        await self._components.binder.drain_binds(self._settings.deadlines.drain_seconds)
        for server in servers:
            server.should_exit = True
        await asyncio.wait(serving)
        log.info("stopped")


async def run_extender(options: ExtenderOptions) -> None:
    """Run the service until SIGTERM or SIGINT.

    Raises `SettingsError` (the scheduler's configuration, TLS files), `CredentialsError` or `OSError` (a port in use) at the start.
    """
    gc.set_threshold(*STARTING_THRESHOLDS)
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    settings = options.settings
    metrics = ExtenderMetrics(options.version)
    _check_scheduler(options, metrics)
    credentials = await load_credentials(
        options.kubeconfig, options.context, on_failure=metrics.credential_failures.inc
    )
    listeners = {"verbs": open_listener(*parse_address(settings.listen.verbs))}
    if settings.listen.health:
        listeners["health"] = open_listener(*parse_address(settings.listen.health))
    api = Api(credentials, observe=metrics.observe_call, user_agent=f"vrampack-extender/{options.version}")
    try:
        extender = Extender(options, api, metrics)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, extender.stop)
        log.info(
            "serving version=%s verbs=%s health=%s prefix=%s policy=%s",
            options.version,
            settings.listen.verbs,
            settings.listen.health or "-",
            settings.listen.url_prefix,
            settings.policy.default,
        )
        await extender.run(listeners)
    finally:
        await api.close()


def _check_scheduler(options: ExtenderOptions, metrics: ExtenderMetrics) -> None:
    path, settings = options.scheduler_config, options.settings
    if path is None:
        log.info("scheduler configuration not checked reason=%s", "--scheduler-config is not given")
        return
    findings = check_scheduler_config(path, settings, decides_in_filter=settings.decide.can_decide_in_filter)
    fatal = [finding.text for finding in findings if finding.is_fatal]
    if fatal:
        raise SettingsError("\n".join(f"{path}: {text}" for text in fatal))
    metrics.scheduler_config_findings.set(len(findings))
    for finding in findings:
        log.warning("scheduler configuration finding path=%s problem=%s", path, finding.text)
