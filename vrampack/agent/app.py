"""The agent, wired together on one page: who gets what, what runs, and how it stops.

    discovery --cards--> advertisement --> device plugin (kubelet) , own node (API server) , fence
    kubelet --PreStart--> prestart --> fence, enforcement ; rejected pods --> own Node, which the extender reads
    reflectors --> pod cache, own node

It registers with kubelet only when it knows its cards and which pods run on them: until then starts wait in kubelet.
Without cards it idles.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vrampack.agent.admission.fence import Fence
from vrampack.agent.admission.injection import Injection
from vrampack.agent.admission.lingering_pods import LingeringPods
from vrampack.agent.admission.pod_workload import PodWorkload
from vrampack.agent.admission.prestart import PreStart
from vrampack.agent.admission.rejected_pods import RejectedPods
from vrampack.agent.admission.running_pods import RunningPods
from vrampack.agent.admission.unguarded_starts import UnguardedStarts
from vrampack.agent.cluster.cards_condition import CardsCondition
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.cluster.observed_pods import ObservedPodsPublisher
from vrampack.agent.cluster.own_node import OwnNode
from vrampack.agent.cluster.pod_cache import PodCache
from vrampack.agent.cluster.refused_pods import RefusedPodsPublisher
from vrampack.agent.cluster.sick_card_pods import SickCardPods
from vrampack.agent.cluster.usage_lease import UsageLeasePublisher
from vrampack.agent.device_plugin.conflicting_plugins import ConflictingPlugins
from vrampack.agent.device_plugin.device_plugin import DevicePlugin
from vrampack.agent.device_plugin.preferred_allocation import PreferredAllocation
from vrampack.agent.device_plugin.registration import KubeletRegistration
from vrampack.agent.device_plugin.resource_slices import ResourceSliceCheck
from vrampack.agent.events import AgentEventReason
from vrampack.agent.inventory.advertisement import Advertisement
from vrampack.agent.inventory.card_events import CardEventRecorder
from vrampack.agent.inventory.discovery import Discovery, build_discovery_settings
from vrampack.agent.inventory.verdict_book import VerdictBook, read_boot_id
from vrampack.agent.kubelet.device_ids import find_list_problem
from vrampack.agent.kubelet.podresources import PodResourcesClient
from vrampack.agent.limits.back_end_row import BackEndRow
from vrampack.agent.limits.back_ends import BACK_ENDS
from vrampack.agent.limits.cgroups import CgroupTree, FindOwner, find_process_owner, parse_owner
from vrampack.agent.limits.contract import LimitTarget
from vrampack.agent.limits.enforcement import Enforcement
from vrampack.agent.limits.enforcement_starter import EnforcementStarter
from vrampack.agent.limits.hook_server import HookQuestion, HookServer
from vrampack.agent.limits.node_context import NodeContext, NodePaths
from vrampack.agent.limits.overuse_reporter import OveruseReporter
from vrampack.agent.limits.pod_limits import PodLimits
from vrampack.agent.metrics import AgentMetrics
from vrampack.agent.nvml.driver import GpuDriver
from vrampack.agent.settings import AgentConfiguration
from vrampack.agent.status.card_publisher import CardPublisher
from vrampack.agent.status.http import METRICS_PATH, StatusPages, serve_status
from vrampack.agent.status.metrics_access import MetricsAccess
from vrampack.agent.status.readiness import DriverState, find_unready_reason
from vrampack.agent.status.schema import LimitsStatus
from vrampack.agent.status.status import build_limits_status
from vrampack.agent.status.usage_collector import UsageCollector
from vrampack.cards import well_known
from vrampack.cards.node import CardFacts
from vrampack.kube.client import Api
from vrampack.kube.events import EventRecorder
from vrampack.kube.objects import LocalNodeObject
from vrampack.kube.reflector import Reflector

log = logging.getLogger(__name__)

RESTORE_RETRY_SECONDS = 5.0
"""Between two attempts to read the node's files before the agent registers."""
OBSERVE_INTERVAL_SECONDS = 30.0
"""kubelet does not announce changed device allocations; a pod of another scheduler is noticed within this time."""


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """How the agent was started."""

    settings: AgentConfiguration
    version: str
    node: str
    kubeconfig: Path | None = None
    """None: the service account of this pod."""
    context: str | None = None
    node_paths: NodePaths = field(default_factory=NodePaths)
    back_ends: Sequence[BackEndRow] = BACK_ENDS
    find_process_owner: FindOwner = find_process_owner


class Agent:
    """One running agent."""

    def __init__(self, options: AgentOptions, api: Api, metrics: AgentMetrics, driver: GpuDriver) -> None:
        self._settings = settings = options.settings
        self._node = options.node
        self._metrics = metrics
        self._stopping = asyncio.Event()
        resource, folder = settings.resources.memory, settings.kubelet_folder
        self._events = EventRecorder(
            api, component="vrampack-agent", on_dropped=metrics.count_dropped_event, clock=time.monotonic, now=time.time
        )
        self._advertisement = Advertisement(find_list_problem=lambda cards: find_list_problem(cards, settings.unit_mib))
        self._pod_resources = PodResourcesClient(
            folder / "pod-resources" / "kubelet.sock",
            folder / "device-plugins" / "kubelet_internal_checkpoint",
            resource=resource,
        )
        self._pod_cache = PodCache(api, resource=resource, on_pod_ended=self._release_pod)
        self._fence = Fence(
            options.node,
            find_presence=lambda uuid: self._discovery.find_presence(uuid),  # noqa: PLW0108 - it is made further down
            is_class_allowed=settings.runtime_classes.is_allowed,
        )
        paths, cgroups = options.node_paths, CgroupTree(options.node_paths.cgroup_mount)
        self._lingering_pods = LingeringPods(
            self._fence, cgroups, on_overdue=self._record_lingering_event, clock=time.monotonic
        )
        self._unguarded_starts = UnguardedStarts(
            self._events,
            metrics,
            needs_hook=lambda: self._enforcement.needs_hook and self._hook_server.is_listening,
            now=time.time,
            clock=time.monotonic,
        )
        self._running_pods = RunningPods(
            self._fence,
            self._pod_cache,
            self._pod_resources,
            lingering_pods=self._lingering_pods,
            metrics=metrics,
            on_unfenced_start=self._unguarded_starts.record_unfenced_start,
            get_cards=self._cards,
        )
        verdicts = VerdictBook(boot=read_boot_id())
        card_events = CardEventRecorder(options.node, self._events, metrics)
        self._discovery = Discovery(
            driver,
            build_discovery_settings(settings),
            is_card_held=self._running_pods.is_card_held,
            on_card_change=card_events.record_change,
            on_xid=card_events.count_xid,
            on_driver_error=metrics.driver_errors.inc,
            verdicts=verdicts,
        )
        self._workload = PodWorkload(self._pod_cache, self._discovery, cgroups, find_owner=options.find_process_owner)
        self._context = NodeContext(
            paths, cgroups, driver, self._discovery, self._workload, settings.watch, settings.kmod, time.monotonic
        )
        self._enforcement = Enforcement(settings.enforcement, self._context, rows=options.back_ends)
        pod_limits = PodLimits(
            cgroups,
            self._enforcement,
            self._workload.get_limits_mib,
            on_allowed=self._record_hook_permission,
        )
        self._hook_server = HookServer(paths.hook_socket, pod_limits.apply_limit, on_refused=self._record_hook_refusal)
        refused_pods = RefusedPodsPublisher()
        self._rejected_pods = RejectedPods(
            self._fence,
            self._events,
            refused_pods,
            self._pod_cache,
            cards=self._cards,
            clock=time.monotonic,
            publish_after_seconds=settings.refused.after_seconds,
            action=settings.refused.action,
        )
        self._overuse_reporter = OveruseReporter(
            self._enforcement.list_over_limit, refused_pods, self._events, find_pod=self._pod_cache.find_pod
        )
        self._injection = Injection(settings, self._context, self._enforcement, self._pod_cache, metrics)
        self._enforcement_starter = EnforcementStarter(
            self._enforcement,
            self._hook_server,
            self._context,
            extend_capabilities=self._injection.extend_capabilities,
            on_attempted=self._publish_enforcement,
        )
        prestart = PreStart(
            self._fence,
            self._pod_resources,
            self._pod_cache,
            self._workload,
            self._enforcement,
            self._rejected_pods,
            lingering_pods=self._lingering_pods,
            metrics=metrics,
            advertisement=self._advertisement,
            card_lists=self._discovery,
            injector=self._injection,
        )
        self._preferred_allocation = PreferredAllocation(self._pod_cache.list_pods)
        plugin = DevicePlugin(
            self._advertisement, prestart, self._preferred_allocation, metrics, injection=self._injection
        )
        self._registration = KubeletRegistration(
            plugin,
            self._advertisement,
            metrics,
            folder=folder / "device-plugins",
            resource=resource,
            on_registered=self._running_pods.count_unfenced_starts,
        )
        self._conflicting_plugins = ConflictingPlugins(
            self._advertisement,
            resource=resource,
            are_cards_selected=settings.cards.are_selected,
            is_registered=lambda: self._registration.is_registered,
            register_again=self._registration.register_again,
            clock=time.monotonic,
        )
        self._resource_slices = ResourceSliceCheck(api, options.node, self._advertisement)
        self._own_node = OwnNode(
            api,
            options.node,
            on_write=metrics.node_writes.inc,
            on_resources=self._conflicting_plugins.update_node_resources,
        )
        refused_pods.attach_node(self._own_node)
        self._card_publisher = CardPublisher(
            self._own_node,
            self._advertisement,
            self._injection,
            self._enforcement,
            verdicts,
            CardsCondition(api, options.node, self._own_node, on_write=metrics.condition_writes.inc),
            events=self._events,
            settings=settings,
            node=options.node,
        )
        self._sick_card_pods = SickCardPods(
            self._events,
            metrics,
            settings.health.evict,
            list_pods=self._pod_cache.list_pods,
            get_cards=self._cards,
            clock=time.monotonic,
            on_evictions_changed=lambda evictions: refused_pods.set_reasons("health", evictions),
        )
        self._observed_pods = ObservedPodsPublisher(self._own_node, self._pod_cache, self._pod_resources, self._cards)
        self._usage_collector = UsageCollector(
            driver,
            self._advertisement,
            self._fence,
            self._pod_cache,
            self._workload,
            self._enforcement,
            hook_server=self._hook_server,
            metrics=metrics,
        )
        metrics.register_snapshot(self._usage_collector.take_snapshot)
        clock, measure, lease = time.monotonic, self._usage_collector.measure_cards, settings.usage_lease
        is_token_asked = settings.metrics.authorization == "token"
        self._metrics_access = MetricsAccess(api, METRICS_PATH, clock=clock) if is_token_asked else None
        self._usage_lease = UsageLeasePublisher(api, self._own_node, lease, measure, metrics=metrics, clock=clock)
        self._reflectors = (
            self._pod_cache.build_reflector(options.node),
            Reflector(api, "nodes", LocalNodeObject, self._own_node, field_selector=f"metadata.name={options.node}"),
        )

    async def run(self) -> None:
        """Serve until `stop`. Raises `OSError` when an address cannot be listened on."""
        pages = StatusPages(self._metrics, self.find_unready_reason, self._build_limits_status)
        status_server = serve_status(self._settings, pages, metrics_access=self._metrics_access)
        try:
            async with status_server, asyncio.TaskGroup() as group:
                background = [group.create_task(task) for task in self._background_tasks()]
                await self._stopping.wait()
                log.info("stopping")
                for task in background:
                    task.cancel()
        finally:
            self._injection.stop()
            await self._hook_server.stop()
            await self._pod_resources.close()
            self._enforcement.stop()
        log.info("stopped")

    def stop(self) -> None:
        """Begin a clean stop; a second call changes nothing."""
        self._stopping.set()

    def find_unready_reason(self) -> str:
        """Why no pod could start here now; empty when all is well, and on a node without cards."""
        if self._stopping.is_set():
            return "stopping"
        discovery = self._discovery
        driver = DriverState(discovery.problem, discovery.is_driver_absent, discovery.unhealthy_reasons)
        problem = self._registration.problem
        return find_unready_reason(self._advertisement.current, driver, registration_problem=problem)

    def _background_tasks(self) -> list[Coroutine[Any, Any, None]]:
        return [
            *(reflector.run() for reflector in self._reflectors),
            self._discovery.run(self._on_cards_changed),
            self._events.run(),
            self._own_node.run(),
            self._card_publisher.run(),
            self._sick_card_pods.run(),
            self._follow_pods(),
            self._rejected_pods.run(),
            self._lingering_pods.run(),
            self._overuse_reporter.run(),
            self._conflicting_plugins.run(),
            self._resource_slices.run(),
            self._usage_collector.run(),
            self._usage_lease.run(),
            self._enforcement.run(self._set_limits_problem),
            self._injection.run(self._publish_injection, self._restart_for_folder),
            self._serve_kubelet(),
        ]

    async def _serve_kubelet(self) -> None:
        """Register once the fence knows which pods run already, and what each holds."""
        async for advertised in self._advertisement.watch_changes():
            if advertised.cards:
                break
            if advertised.is_discovered:
                log.info("agent idle reason=%s", advertised.problem or "this node has no cards")
        await self._own_node.wait_for_sync()
        await self._restore_state()
        await self._observed_pods.publish_pods()  # the first check may have come before the cards were known
        await self._enforcement_starter.start_enforcement()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._registration.run())
            group.create_task(self._enforcement_starter.run())

    async def _restore_state(self) -> None:
        """Retry: what fails now, for want of descriptors or because a folder cannot be read, may work later."""
        while True:
            try:
                await self._injection.choose_mode(self._own_node)
                self._publish_injection()
                await self._pod_cache.wait_for_sync()
                await self._running_pods.restore_fence()
            except OSError as error:
                log.error("node not read error=%s", error)  # noqa: TRY400 - a fault of the node, no traceback
                self._advertisement.block("restore", f"the agent cannot read the node: {error}")
                await asyncio.sleep(RESTORE_RETRY_SECONDS)
            else:
                self._advertisement.block("restore", "")
                return

    def _publish_enforcement(self, problem: str) -> None:
        self._advertisement.block("enforcement", problem)
        self._own_node.set_desired({("labels", well_known.ENFORCEMENT): self._enforcement.mode or None})
        self._card_publisher.write_cards(self._advertisement.current)

    def _set_limits_problem(self, problem: str) -> None:
        self._advertisement.block("limits", f"limits cannot be enforced: {problem}" if problem else "")
        self._card_publisher.write_cards(self._advertisement.current)

    def _publish_injection(self) -> None:
        """Show the mode of new containers in the log, an event and the Node; a problem keeps all cards from new pods."""
        mode, reason, problem = self._injection.mode, self._injection.reason, self._injection.problem
        log.log(logging.ERROR if problem else logging.INFO, "injection chosen mode=%s reason=%r", mode, reason)
        text = f"containers get their cards by {mode}: {problem or reason}"
        self._events.record_node_event(self._node, AgentEventReason.INJECTION, text, is_warning=bool(problem))
        self._own_node.set_desired({("labels", well_known.INJECTION): mode})
        self._advertisement.block("injection", problem)
        self._card_publisher.write_cards(self._advertisement.current)

    def _restart_for_folder(self) -> None:
        log.error("spec folder removed, exiting so that the new one is mounted")
        self.stop()

    async def _follow_pods(self) -> None:
        """Ask kubelet for what only it knows about the pods, at each change of them and periodically."""
        while True:
            try:
                async with asyncio.timeout(OBSERVE_INTERVAL_SECONDS):
                    await self._pod_cache.wait_for_change()
            except TimeoutError:
                log.debug("checking unrecorded pods")
            self._enforcement.notify_pods_changed()
            self._unguarded_starts.check_containers(self._pod_cache.list_pods(), self._workload.get_limits_mib)
            if self._registration.is_registered:
                # What started before the registration may be seen after it.
                await self._running_pods.count_unfenced_starts()
            await self._observed_pods.publish_pods()

    def _build_limits_status(self) -> LimitsStatus:
        version, pods = self._discovery.driver_version, self._pod_cache.list_pods()
        return build_limits_status(
            self._node,
            self._enforcement,
            self._workload,
            driver_version=version,
            cards=self._cards(),
            pods=pods,
            unguarded=self._unguarded_starts.list_containers(),
        )

    def _on_cards_changed(self) -> None:
        if self._discovery.is_outdated:
            log.error("driver replaced, exiting so that the new library is loaded")
            self.stop()
        cards = self._discovery.cards
        self._advertisement.update_cards(cards, "" if cards else self._discovery.problem)

    def _record_lingering_event(self, text: str) -> None:
        self._events.record_node_event(self._node, AgentEventReason.POD_LINGERS, text)

    def _record_hook_permission(self, target: LimitTarget, container_id: str) -> None:
        self._unguarded_starts.record_answer(container_id)
        self._rejected_pods.withdraw_hook_refusal(target.pod_uid, target.container)

    def _record_hook_refusal(self, question: HookQuestion, text: str) -> None:
        """The hook may ask for containers of pods that have no card, too: those are not this agent's to report."""
        owner = parse_owner(question.cgroup)
        pod = self._workload.find_pod(owner.pod_uid) if owner is not None else None
        if pod is not None and pod.pod.request is not None:
            self._rejected_pods.record_hook_refusal(pod, question.container, text)

    def _release_pod(self, pod: LocalPod) -> None:
        uid = pod.pod.uid
        self._lingering_pods.add_pod(uid, str(pod.pod))
        self._rejected_pods.forget_pod(uid)
        self._overuse_reporter.forget_pod(uid)
        self._preferred_allocation.forget_pod(uid)
        self._workload.forget_pod(uid)
        self._enforcement.forget_pod(uid)
        self._injection.forget_pod(uid)

    def _cards(self) -> tuple[CardFacts, ...]:
        return self._advertisement.current.cards
