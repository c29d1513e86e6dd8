"""Keeps the ledger in step with the API server, and knows how fresh it is.

Two reflectors, of pods and of nodes, feed two sinks; the ledger is complete once both first lists ended. A third task
recomputes every node, slice by slice, and reports where the ledger differs, which would be a bug.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from extender.events import EventReason, ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.settings import ExtenderConfiguration
from extender.state.binding_writers import BindingWriters
from extender.state.denied_calls import DeniedCalls
from extender.state.host_usage import HostUsage
from extender.state.ledger import Ledger
from extender.state.ledger_drift import count_drift_units
from extender.state.ledger_problems import LedgerProblem
from extender.state.relist_baseline import RelistBaseline
from extender.state.reported_refusals import ReportedRefusals
from vrampack.cards import well_known
from vrampack.cards.pod import Pod
from vrampack.kube.client import Api
from vrampack.kube.objects import NodeObject, PodObject, PodSpec, to_node, to_pod
from vrampack.kube.reflector import ObjectReference, Reflector
from vrampack.kube.watch_lag import WatchLag

log = logging.getLogger(__name__)

RESOURCES = ("nodes", "pods")
DRIFT_CHECK_SECONDS = 60.0
DRIFT_CHECK_NODES_PER_SLICE = 25
"""Nodes between two yields to the event loop: about 2 ms where each has twenty pods."""

_EVENT_REASONS = {
    "record_missing": EventReason.UNASSIGNED_POD,
    "record_unreadable": EventReason.ANNOTATION_REJECTED,
    "card_unknown": EventReason.ANNOTATION_REJECTED,
    "records_disagree": EventReason.RECORDS_DISAGREE,
    "overcommitted": EventReason.OVERCOMMITTED,
}


class Freshness:
    """When the API server last sent news of pods and of nodes, whether it is read on time, and whether both lists are complete."""

    def __init__(self, *, clock: Callable[[], float], now: Callable[[], float], stale_seconds: float) -> None:
        self._clock = clock
        self._now = now
        self._stale_seconds = stale_seconds
        self._activity_at: dict[str, float] = {}
        self._listed = {resource: asyncio.Event() for resource in RESOURCES}
        self.lags = {resource: WatchLag(resource, clock=clock) for resource in RESOURCES}
        """The reflectors record here whether they read their watches on time."""
        self.last_activity_at: dict[str, float] = {}
        """Unix seconds by resource, for people."""

    def record_activity(self, resource: str) -> None:
        self._activity_at[resource] = self._clock()
        self.last_activity_at[resource] = self._now()

    def mark_listed(self, resource: str) -> None:
        self._listed[resource].set()

    async def wait_until_listed(self, resource: str) -> None:
        """Wait for the first complete list."""
        await self._listed[resource].wait()

    def find_unready_reason(self) -> str:
        """Why the ledger must not be trusted now; empty when it may."""
        for resource in RESOURCES:
            if not self._listed[resource].is_set():
                return f"the list of {resource} is not complete yet"
            silence = self._clock() - self._activity_at[resource]
            if silence > self._stale_seconds:
                return f"the API server has sent nothing about {resource} for {silence:.0f} s"
            if lag := self.lags[resource].describe_lag():
                return lag
        return ""


class ReadinessCheck:
    """Whether the service may answer verbs.

    The ledger must be complete, fresh and summarized, the API server take our calls, and the service not be stopping.
    """

    def __init__(self, freshness: Freshness, denied_calls: DeniedCalls | None = None) -> None:
        self._freshness = freshness
        self._denied_calls = denied_calls
        self._is_stopping = False
        self._preparation = ""
        """Why the service is not ready yet; empty when nothing is left to prepare."""

    def mark_preparing(self, what: str = "the nodes are being summarized") -> None:
        """Be unready until `mark_prepared`, even with complete lists."""
        self._preparation = what

    def mark_prepared(self) -> None:
        self._preparation = ""

    def mark_stopping(self) -> None:
        """Be unready from now on."""
        self._is_stopping = True

    def find_unready_reason(self) -> str:
        """Why verbs must not be answered now; empty when they may."""
        if self._is_stopping:
            return "stopping"
        problem = self._freshness.find_unready_reason() or self._preparation
        return problem or ("" if self._denied_calls is None else self._denied_calls.find_unready_reason())


class ProblemReporter:
    """Counts, logs and records an event for each problem that the ledger or a sink finds."""

    def __init__(self, metrics: ExtenderMetrics, events: ExtenderEventRecorder) -> None:
        self._metrics = metrics
        self._events = events

    def report_ledger_problem(self, problem: LedgerProblem) -> None:
        self._metrics.annotation_violations.labels(problem.kind).inc()
        reason = _EVENT_REASONS[problem.kind]
        log.warning(
            "ledger problem found kind=%s node=%s pod=%s problem=%s",
            problem.kind,
            problem.node_name,
            problem.pod or "-",
            problem.text,
        )
        if problem.pod is not None:
            self._events.record_pod_event(problem.pod, reason, f"on node {problem.node_name}: {problem.text}")
        else:
            self._events.record_node_event(problem.node_name, reason, problem.text, card=problem.card)

    def report_invalid_request(self, pod: Pod, text: str) -> None:
        """`text` names the wrong field and what to write; reasons in answers to the scheduler are fixed and do not."""
        self._metrics.annotation_violations.labels("request_not_valid").inc()
        log.warning("request not valid pod=%s problem=%s", pod, text)
        self._events.record_pod_event(pod, EventReason.REQUEST_NOT_VALID, text)

    def report_node_problem(self, name: str, text: str) -> None:
        self._metrics.annotation_violations.labels("node_unreadable").inc()
        log.warning("node annotation rejected node=%s problem=%s", name, text)
        self._events.record_node_event(name, EventReason.ANNOTATION_REJECTED, text)

    def report_unit_mismatch(self, name: str, text: str) -> None:
        self._metrics.annotation_violations.labels("unit_mismatch").inc()
        log.warning("node unit mismatch node=%s problem=%s", name, text)
        self._events.record_node_event(name, EventReason.UNIT_MISMATCH, text)

    def report_malformed_object(self, text: str) -> None:
        self._metrics.annotation_violations.labels("object_malformed").inc()
        log.warning("object not decoded error=%s", text)


class PodWatcher(Protocol):
    """Reads something else from every pod that asks for cards."""

    def update_pod(self, pod: Pod, spec: PodSpec) -> None: ...
    def remove_pod(self, uid: str) -> None: ...
    def keep_pods(self, uids: Collection[str]) -> None: ...


class PodSink:
    """A reflector's sink: feeds pods into the ledger."""

    def __init__(  # noqa: PLR0913 - what a pod changes
        self,
        ledger: Ledger,
        freshness: Freshness,
        reporter: ProblemReporter,
        metrics: ExtenderMetrics,
        resource: str,
        *,
        hosts: HostUsage | None = None,
        writers: BindingWriters | None = None,
        pod_watchers: Sequence[PodWatcher] = (),
    ) -> None:
        self._ledger = ledger
        self._watchers = pod_watchers
        self._writers = writers
        self._hosts = hosts or HostUsage(is_kept=False)
        self._known_on_hosts: frozenset[str] | None = None
        self._freshness = freshness
        self._metrics = metrics
        self._resource = resource
        self._baseline: RelistBaseline | None = None
        self._listed: set[str] = set()
        self._reporter = reporter

    def on_list_started(self, reason: str) -> None:
        self._metrics.relists.labels("pods", reason).inc()
        self._baseline = self._ledger.begin_list()
        self._known_on_hosts = self._hosts.begin_list()
        self._listed = set()

    def on_page(self, objects: Sequence[PodObject]) -> None:
        for obj in objects:
            self._listed.add(obj.metadata.uid)
            pod = self._read_pod(obj)
            if not pod.is_placeholder:
                self._ledger.update_listed_pod(pod)

    def on_list_finished(self) -> None:
        if self._baseline is not None:
            self._ledger.end_list(self._baseline, self._listed)
            self._hosts.end_list(self._known_on_hosts, self._listed)
            for watcher in self._watchers:
                watcher.keep_pods(self._listed)
        self._baseline, self._listed, self._known_on_hosts = None, set(), None
        self._freshness.mark_listed("pods")

    def on_changed(self, obj: PodObject) -> None:
        pod = self._read_pod(obj)
        if self._writers is not None:
            self._writers.observe_pod(pod)
        if not pod.is_placeholder:
            self._ledger.update_pod(pod)

    def on_deleted(self, obj: PodObject) -> None:
        self._ledger.remove_pod(obj.metadata.uid)
        self._hosts.remove_pod(obj.metadata.uid)
        for watcher in self._watchers:
            watcher.remove_pod(obj.metadata.uid)

    def on_malformed(self, reference: ObjectReference, text: str) -> None:
        self._reporter.report_malformed_object(text)
        self._listed.add(reference.uid)

    def on_contact(self) -> None:
        self._freshness.record_activity("pods")

    def _read_pod(self, obj: PodObject) -> Pod:
        host = self._hosts.update_pod(obj)
        pod = to_pod(obj, resource=self._resource, label_keys=self._ledger.label_keys, host=host)
        if pod.request is not None:
            for watcher in self._watchers:
                watcher.update_pod(pod, obj.spec)
        problem = pod.request.problem if pod.request is not None else ""
        if problem and not pod.node_name and not pod.is_finished and self._ledger.get_pod(pod.uid) is None:
            self._reporter.report_invalid_request(pod, problem)
        return pod


class NodeWatcher(Protocol):
    """Reads something else from every node."""

    def update_node(self, obj: NodeObject) -> None: ...
    def remove_node(self, name: str) -> None: ...


class NodeSink:
    """A reflector's sink: feeds nodes into the ledger."""

    def __init__(  # noqa: PLR0913 - what a node changes
        self,
        ledger: Ledger,
        freshness: Freshness,
        reporter: ProblemReporter,
        metrics: ExtenderMetrics,
        settings: ExtenderConfiguration,
        *,
        hosts: HostUsage | None = None,
        refusals: ReportedRefusals | None = None,
        node_watchers: Sequence[NodeWatcher] = (),
    ) -> None:
        self._ledger = ledger
        self._watchers = node_watchers
        self._hosts = hosts or HostUsage(is_kept=False)
        self._refusals = refusals
        self._freshness = freshness
        self._reporter = reporter
        self._metrics = metrics
        self._settings = settings
        self._known_names: frozenset[str] = frozenset()
        self._listed: set[str] = set()
        self._problems: dict[str, tuple[str, ...]] = {}

    def on_list_started(self, reason: str) -> None:
        self._metrics.relists.labels("nodes", reason).inc()
        self._known_names = self._ledger.list_node_names()
        self._listed = set()

    def on_page(self, objects: Sequence[NodeObject]) -> None:
        for obj in objects:
            self._listed.add(obj.metadata.name)
            self.on_changed(obj)

    def on_list_finished(self) -> None:
        for name in self._known_names - self._listed:
            self._forget(name)
        self._freshness.mark_listed("nodes")

    def on_changed(self, obj: NodeObject) -> None:
        resources = self._settings.resources
        unit_mib = self._settings.unit_mib
        reading = to_node(obj, unit_mib=unit_mib, resource=resources.memory, count_resource=resources.count)
        self._ledger.update_node(reading.facts)
        self._hosts.update_node(obj)
        for watcher in self._watchers:
            watcher.update_node(obj)
        problems = reading.problems
        if self._refusals is not None:
            text = (obj.metadata.annotations or {}).get(well_known.NODE_REFUSED)
            problems += self._refusals.update_node(reading.facts.name, text)
        self._report(reading.facts.name, problems)

    def on_deleted(self, obj: NodeObject) -> None:
        self._forget(obj.metadata.name)

    def on_malformed(self, reference: ObjectReference, text: str) -> None:
        self._reporter.report_malformed_object(text)
        self._listed.add(reference.name)

    def on_contact(self) -> None:
        self._freshness.record_activity("nodes")

    def _forget(self, name: str) -> None:
        self._problems.pop(name, None)
        self._ledger.remove_node(name)
        self._hosts.remove_node(name)
        for watcher in self._watchers:
            watcher.remove_node(name)
        if self._refusals is not None:
            self._refusals.remove_node(name)

    def _report(self, name: str, problems: tuple[str, ...]) -> None:
        """Report each problem once, not with every heartbeat of the node."""
        node = self._ledger.get_node(name)
        mismatch = node.problem if node is not None and node.problem and node.problem not in problems else ""
        known = self._problems.get(name, ())
        for text in problems:
            if text not in known:
                self._reporter.report_node_problem(name, text)
        if mismatch and mismatch not in known:
            self._reporter.report_unit_mismatch(name, mismatch)
        self._problems[name] = (*problems, mismatch)


class DriftCheck:
    """Recomputes the ledger continuously, a slice at a time."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.drift_units: dict[str, int] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(DRIFT_CHECK_SECONDS)
            drift_units: dict[str, int] = {}
            for count, name in enumerate(self._ledger.list_node_names()):
                if drift := count_drift_units(self._ledger, name):
                    drift_units[name] = drift
                    log.error("ledger drift node=%s units=%d", name, drift)
                if count % DRIFT_CHECK_NODES_PER_SLICE == 0:
                    await asyncio.sleep(0)
            self.drift_units = drift_units


async def run_reflectors(pods: Reflector[PodObject], nodes: Reflector[NodeObject], freshness: Freshness) -> None:
    """Feed the ledger until cancelled. Nodes start after the first list of pods, so each is computed once, not per pod."""
    async with asyncio.TaskGroup() as group:
        group.create_task(pods.run())
        await freshness.wait_until_listed("pods")
        group.create_task(nodes.run())


def build_reflectors(  # noqa: PLR0913 - what the two sinks are made of
    api: Api,
    ledger: Ledger,
    freshness: Freshness,
    reporter: ProblemReporter,
    metrics: ExtenderMetrics,
    settings: ExtenderConfiguration,
    *,
    hosts: HostUsage | None = None,
    refusals: ReportedRefusals | None = None,
    writers: BindingWriters | None = None,
    pod_watchers: Sequence[PodWatcher] = (),
    node_watchers: Sequence[NodeWatcher] = (),
) -> tuple[Reflector[PodObject], Reflector[NodeObject]]:
    """Build the two reflectors that feed the ledger."""
    pods = PodSink(
        ledger,
        freshness,
        reporter,
        metrics,
        settings.resources.memory,
        hosts=hosts,
        writers=writers,
        pod_watchers=pod_watchers,
    )
    nodes = NodeSink(
        ledger, freshness, reporter, metrics, settings, hosts=hosts, refusals=refusals, node_watchers=node_watchers
    )
    return (
        Reflector(api, "pods", PodObject, pods, lag=freshness.lags["pods"]),
        Reflector(api, "nodes", NodeObject, nodes, lag=freshness.lags["nodes"]),
    )
