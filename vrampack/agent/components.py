"""The parts of the agent, wired together on one page: who gets what, and what one part tells another.

    discovery --cards--> advertisement --> device plugin (kubelet) , own node (API server) , fence
    kubelet --PreStart--> prestart --> fence, enforcement ; rejected pods --> own Node, which the extender reads
    reflectors --> pod cache, own node

`app.py` says what runs, and in which order.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
from vrampack.agent.inventory.discovery import Discovery
from vrampack.agent.inventory.discovery_settings import build_discovery_settings
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
from vrampack.agent.status.http import METRICS_PATH
from vrampack.agent.status.metrics_access import MetricsAccess
from vrampack.agent.status.usage_collector import UsageCollector
from vrampack.cards import well_known
from vrampack.cards.node import CardFacts
from vrampack.kube.client import Api
from vrampack.kube.events import EventRecorder
from vrampack.kube.objects import LocalNodeObject
from vrampack.kube.reflector import Reflector

log = logging.getLogger(__name__)


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


class AgentComponents:
    """What an agent consists of. Nothing runs yet."""

    def __init__(self, options: AgentOptions, api: Api, metrics: AgentMetrics, driver: GpuDriver) -> None:
        settings = options.settings
        self._node = options.node
        resource, folder = settings.resources.memory, settings.kubelet_folder
        self.events = EventRecorder(
            api, component="vrampack-agent", on_dropped=metrics.count_dropped_event, clock=time.monotonic, now=time.time
        )
        self.advertisement = Advertisement(find_list_problem=lambda cards: find_list_problem(cards, settings.unit_mib))
        self.pod_resources = PodResourcesClient(
            folder / "pod-resources" / "kubelet.sock",
            folder / "device-plugins" / "kubelet_internal_checkpoint",
            resource=resource,
        )
        self.pod_cache = PodCache(api, resource=resource, on_pod_ended=self._release_pod)
        self.fence = Fence(
            options.node,
            find_presence=lambda uuid: self.discovery.find_presence(uuid),  # noqa: PLW0108 - it is made further down
            is_class_allowed=settings.runtime_classes.is_allowed,
        )
        paths, cgroups = options.node_paths, CgroupTree(options.node_paths.cgroup_mount)
        self.lingering_pods = LingeringPods(
            self.fence, cgroups, on_overdue=self._record_lingering_event, clock=time.monotonic
        )
        self.unguarded_starts = UnguardedStarts(
            self.events,
            metrics,
            needs_hook=lambda: self.enforcement.needs_hook and self.hook_server.is_listening,
            now=time.time,
            clock=time.monotonic,
        )
        self.running_pods = RunningPods(
            self.fence,
            self.pod_cache,
            self.pod_resources,
            lingering_pods=self.lingering_pods,
            metrics=metrics,
            on_unfenced_start=self.unguarded_starts.record_unfenced_start,
            get_cards=self.get_cards,
        )
        verdicts = VerdictBook(boot=read_boot_id())
        card_events = CardEventRecorder(options.node, self.events, metrics)
        self.discovery = Discovery(
            driver,
            build_discovery_settings(settings),
            is_card_held=self.running_pods.is_card_held,
            on_card_change=card_events.record_change,
            on_xid=card_events.count_xid,
            on_driver_error=metrics.driver_errors.inc,
            verdicts=verdicts,
        )
        self.workload = PodWorkload(self.pod_cache, self.discovery, cgroups, find_owner=options.find_process_owner)
        context = NodeContext(
            paths, cgroups, driver, self.discovery, self.workload, settings.watch, settings.kmod, time.monotonic
        )
        self.enforcement = Enforcement(settings.enforcement, context, rows=options.back_ends)
        pod_limits = PodLimits(
            cgroups,
            self.enforcement,
            self.workload.get_limits_mib,
            on_allowed=self._record_hook_permission,
        )
        self.hook_server = HookServer(paths.hook_socket, pod_limits.apply_limit, on_refused=self._record_hook_refusal)
        refused_pods = RefusedPodsPublisher()
        self.rejected_pods = RejectedPods(
            self.fence,
            self.events,
            refused_pods,
            self.pod_cache,
            cards=self.get_cards,
            clock=time.monotonic,
            publish_after_seconds=settings.refused.after_seconds,
            action=settings.refused.action,
        )
        self.overuse_reporter = OveruseReporter(
            self.enforcement.list_over_limit, refused_pods, self.events, find_pod=self.pod_cache.find_pod
        )
        self.injection = Injection(settings, context, self.enforcement, self.pod_cache, metrics)
        self.enforcement_starter = EnforcementStarter(
            self.enforcement,
            self.hook_server,
            context,
            extend_capabilities=self.injection.extend_capabilities,
            on_attempted=self._publish_enforcement,
        )
        prestart = PreStart(
            self.fence,
            self.pod_resources,
            self.pod_cache,
            self.workload,
            self.enforcement,
            self.rejected_pods,
            lingering_pods=self.lingering_pods,
            metrics=metrics,
            advertisement=self.advertisement,
            card_lists=self.discovery,
            injector=self.injection,
        )
        self._preferred_allocation = PreferredAllocation(self.pod_cache.list_pods)
        plugin = DevicePlugin(
            self.advertisement, prestart, self._preferred_allocation, metrics, injection=self.injection
        )
        self.registration = KubeletRegistration(
            plugin,
            self.advertisement,
            metrics,
            folder=folder / "device-plugins",
            resource=resource,
            on_registered=self.running_pods.count_unfenced_starts,
        )
        self.conflicting_plugins = ConflictingPlugins(
            self.advertisement,
            resource=resource,
            are_cards_selected=settings.cards.are_selected,
            is_registered=lambda: self.registration.is_registered,
            register_again=self.registration.register_again,
            clock=time.monotonic,
        )
        self.resource_slices = ResourceSliceCheck(api, options.node, self.advertisement)
        self.own_node = OwnNode(
            api,
            options.node,
            on_write=metrics.node_writes.inc,
            on_resources=self.conflicting_plugins.update_node_resources,
        )
        refused_pods.attach_node(self.own_node)
        self.card_publisher = CardPublisher(
            self.own_node,
            self.advertisement,
            self.injection,
            self.enforcement,
            verdicts,
            CardsCondition(api, options.node, self.own_node, on_write=metrics.condition_writes.inc),
            events=self.events,
            settings=settings,
            node=options.node,
        )
        self.sick_card_pods = SickCardPods(
            self.events,
            metrics,
            settings.health.evict,
            list_pods=self.pod_cache.list_pods,
            get_cards=self.get_cards,
            clock=time.monotonic,
            on_evictions_changed=lambda evictions: refused_pods.set_reasons("health", evictions),
        )
        self.observed_pods = ObservedPodsPublisher(self.own_node, self.pod_cache, self.pod_resources, self.get_cards)
        self.usage_collector = UsageCollector(
            driver,
            self.advertisement,
            self.fence,
            self.pod_cache,
            self.workload,
            self.enforcement,
            hook_server=self.hook_server,
            metrics=metrics,
        )
        metrics.register_snapshot(self.usage_collector.take_snapshot)
        clock, measure, lease = time.monotonic, self.usage_collector.measure_cards, settings.usage_lease
        is_token_asked = settings.metrics.authorization == "token"
        self.metrics_access = MetricsAccess(api, METRICS_PATH, clock=clock) if is_token_asked else None
        self.usage_lease = UsageLeasePublisher(api, self.own_node, lease, measure, metrics=metrics, clock=clock)
        self.reflectors = (
            self.pod_cache.build_reflector(options.node),
            Reflector(api, "nodes", LocalNodeObject, self.own_node, field_selector=f"metadata.name={options.node}"),
        )

    def get_cards(self) -> tuple[CardFacts, ...]:
        return self.advertisement.current.cards

    def set_limits_problem(self, problem: str) -> None:
        """A problem with limits keeps all cards from new pods; empty: there is none."""
        self.advertisement.block("limits", f"limits cannot be enforced: {problem}" if problem else "")
        self.card_publisher.write_cards(self.advertisement.current)

    def publish_injection(self) -> None:
        """Show the mode of new containers in the log, an event and the Node; a problem keeps all cards from new pods."""
        mode, reason, problem = self.injection.mode, self.injection.reason, self.injection.problem
        log.log(logging.ERROR if problem else logging.INFO, "injection chosen mode=%s reason=%r", mode, reason)
        text = f"containers get their cards by {mode}: {problem or reason}"
        self.events.record_node_event(self._node, AgentEventReason.INJECTION, text, is_warning=bool(problem))
        self.own_node.set_desired({("labels", well_known.INJECTION): mode})
        self.advertisement.block("injection", problem)
        self.card_publisher.write_cards(self.advertisement.current)

    def _publish_enforcement(self, problem: str) -> None:
        self.advertisement.block("enforcement", problem)
        self.own_node.set_desired({("labels", well_known.ENFORCEMENT): self.enforcement.mode or None})
        self.card_publisher.write_cards(self.advertisement.current)

    def _record_lingering_event(self, text: str) -> None:
        self.events.record_node_event(self._node, AgentEventReason.POD_LINGERS, text)

    def _record_hook_permission(self, target: LimitTarget, container_id: str) -> None:
        self.unguarded_starts.record_answer(container_id)
        self.rejected_pods.withdraw_hook_refusal(target.pod_uid, target.container)

    def _record_hook_refusal(self, question: HookQuestion, text: str) -> None:
        """The hook may ask for containers of pods that have no card, too: those are not this agent's to report."""
        owner = parse_owner(question.cgroup)
        pod = self.workload.find_pod(owner.pod_uid) if owner is not None else None
        if pod is not None and pod.pod.request is not None:
            self.rejected_pods.record_hook_refusal(pod, question.container, text)

    def _release_pod(self, pod: LocalPod) -> None:
        uid = pod.pod.uid
        self.lingering_pods.add_pod(uid, str(pod.pod))
        self.rejected_pods.forget_pod(uid)
        self.overuse_reporter.forget_pod(uid)
        self._preferred_allocation.forget_pod(uid)
        self.workload.forget_pod(uid)
        self.enforcement.forget_pod(uid)
        self.injection.forget_pod(uid)
