"""Keeps the ledger in step with the API server, and knows how fresh it is.

Two reflectors, pods and nodes, feed two sinks; the ledger is complete when both lists ended once. A third task
counts every node anew, slice by slice, and notes where the ledger differs: it never should.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from extender.events import EventReason, EventWriter
from extender.ledger import Ledger, PodList
from extender.metrics import Metrics
from extender.notices import Notice
from extender.settings import ExtenderConfiguration
from vrampack.cards.pod import Pod
from vrampack.kube.client import Api
from vrampack.kube.objects import NodeObject, PodObject, to_node, to_pod
from vrampack.kube.reflector import Identity, Reflector

log = logging.getLogger(__name__)

RESOURCES = ("nodes", "pods")
RECOUNT_SECONDS = 60.0
RECOUNT_SLICE = 100
"""Nodes counted before others get their turn: about 2 ms."""

_EVENT_REASONS = {
    "record_missing": EventReason.UNASSIGNED_POD,
    "record_unreadable": EventReason.ANNOTATION_REJECTED,
    "card_unknown": EventReason.ANNOTATION_REJECTED,
    "records_disagree": EventReason.RECORDS_DISAGREE,
    "overcommitted": EventReason.OVERCOMMITTED,
}


class Freshness:
    """When the API server last spoke of pods and of nodes, and whether both lists are complete."""

    def __init__(self, *, clock: Callable[[], float], now: Callable[[], float], stale_seconds: float) -> None:
        self._clock = clock
        self._now = now
        self._stale_seconds = stale_seconds
        self._heard: dict[str, float] = {}
        self._listed = {resource: asyncio.Event() for resource in RESOURCES}
        self.heard_at: dict[str, float] = {}
        """Unix seconds by resource, for people."""

    def heard(self, resource: str) -> None:
        self._heard[resource] = self._clock()
        self.heard_at[resource] = self._now()

    def completed(self, resource: str) -> None:
        self._listed[resource].set()

    async def listed(self, resource: str) -> None:
        """Wait for the first complete list."""
        await self._listed[resource].wait()

    def problem(self) -> str:
        """Why the ledger must not be trusted now; empty when it may."""
        for resource in RESOURCES:
            if not self._listed[resource].is_set():
                return f"the list of {resource} is not complete yet"
            silence = self._clock() - self._heard[resource]
            if silence > self._stale_seconds:
                return f"no word from the API server about {resource} for {silence:.0f} s"
        return ""


class Watcher:
    """What becomes of problems that the ledger or a sink notices: a count, an event, a log line."""

    def __init__(self, metrics: Metrics, events: EventWriter) -> None:
        self._metrics = metrics
        self._events = events

    def notice(self, notice: Notice) -> None:
        """A `Ledger` report."""
        self._metrics.violations.labels(notice.kind).inc()
        reason = _EVENT_REASONS[notice.kind]
        log.warning("%s node=%s pod=%s %s", notice.kind, notice.node_name, notice.pod or "-", notice.text)
        if notice.pod is not None:
            self._events.on_pod(notice.pod, reason, f"on node {notice.node_name}: {notice.text}")
        else:
            self._events.on_node(notice.node_name, reason, notice.text, card=notice.card)

    def request_not_valid(self, pod: Pod, text: str) -> None:
        """Refused nodes carry fixed texts; here stands which field is wrong, and what to write."""
        self._metrics.violations.labels("request_not_valid").inc()
        log.warning("request not valid pod=%s %s", pod, text)
        self._events.on_pod(pod, EventReason.REQUEST_NOT_VALID, text)

    def node_problem(self, name: str, text: str) -> None:
        self._metrics.violations.labels("node_unreadable").inc()
        log.warning("node annotation rejected node=%s %s", name, text)
        self._events.on_node(name, EventReason.ANNOTATION_REJECTED, text)

    def unit_mismatch(self, name: str, text: str) -> None:
        self._metrics.violations.labels("unit_mismatch").inc()
        log.warning("node refused node=%s %s", name, text)
        self._events.on_node(name, EventReason.UNIT_MISMATCH, text)

    def malformed(self, text: str) -> None:
        self._metrics.violations.labels("object_malformed").inc()
        log.warning("object not decoded, what was known of it stays %s", text)


class PodSink:
    """Pods of the reflector into the ledger."""

    def __init__(self, ledger: Ledger, freshness: Freshness, watcher: Watcher, metrics: Metrics, resource: str) -> None:
        self._ledger = ledger
        self._freshness = freshness
        self._metrics = metrics
        self._resource = resource
        self._before: PodList | None = None
        self._listed: set[str] = set()
        self._watcher = watcher

    def list_begins(self, reason: str) -> None:
        self._metrics.relists.labels("pods", reason).inc()
        self._before = self._ledger.list_begins()
        self._listed = set()

    def listed(self, objects: Sequence[PodObject]) -> None:
        for obj in objects:
            self._listed.add(obj.metadata.uid)
            self._ledger.pod_listed(self._read(obj))

    def list_ends(self) -> None:
        if self._before is not None:
            self._ledger.list_ends(self._before, self._listed)
        self._before, self._listed = None, set()
        self._freshness.completed("pods")

    def changed(self, obj: PodObject) -> None:
        self._ledger.pod_changed(self._read(obj))

    def gone(self, obj: PodObject) -> None:
        self._ledger.pod_gone(obj.metadata.uid)

    def malformed(self, who: Identity, text: str) -> None:
        self._watcher.malformed(text)
        self._listed.add(who.uid)

    def heard(self) -> None:
        self._freshness.heard("pods")

    def _read(self, obj: PodObject) -> Pod:
        pod = to_pod(obj, resource=self._resource)
        problem = pod.ask.request.problem if pod.ask is not None else ""
        if problem and not pod.node_name and not pod.is_finished and self._ledger.pod(pod.uid) is None:
            self._watcher.request_not_valid(pod, problem)
        return pod


class NodeSink:
    """Nodes of the reflector into the ledger."""

    def __init__(
        self, ledger: Ledger, freshness: Freshness, watcher: Watcher, metrics: Metrics, settings: ExtenderConfiguration
    ) -> None:
        self._ledger = ledger
        self._freshness = freshness
        self._watcher = watcher
        self._metrics = metrics
        self._settings = settings
        self._before: frozenset[str] = frozenset()
        self._listed: set[str] = set()
        self._problems: dict[str, tuple[str, ...]] = {}

    def list_begins(self, reason: str) -> None:
        self._metrics.relists.labels("nodes", reason).inc()
        self._before = self._ledger.node_names()
        self._listed = set()

    def listed(self, objects: Sequence[NodeObject]) -> None:
        for obj in objects:
            self._listed.add(obj.metadata.name)
            self.changed(obj)

    def list_ends(self) -> None:
        for name in self._before - self._listed:
            self._forget(name)
        self._freshness.completed("nodes")

    def changed(self, obj: NodeObject) -> None:
        resources = self._settings.resources
        unit_mib = self._settings.unit_mib
        reading = to_node(obj, unit_mib=unit_mib, resource=resources.memory, count_resource=resources.count)
        self._ledger.node_changed(reading.facts)
        self._report(reading.facts.name, reading.problems)

    def gone(self, obj: NodeObject) -> None:
        self._forget(obj.metadata.name)

    def malformed(self, who: Identity, text: str) -> None:
        self._watcher.malformed(text)
        self._listed.add(who.name)

    def heard(self) -> None:
        self._freshness.heard("nodes")

    def _forget(self, name: str) -> None:
        self._problems.pop(name, None)
        self._ledger.node_gone(name)

    def _report(self, name: str, problems: tuple[str, ...]) -> None:
        """Once per problem, not once per heartbeat of the node."""
        node = self._ledger.node(name)
        mismatch = node.problem if node is not None and node.problem and node.problem not in problems else ""
        found = (*problems, mismatch) if mismatch else problems
        known = self._problems.get(name, ())
        for text in found:
            if text not in known:
                (self._watcher.unit_mismatch if text == mismatch else self._watcher.node_problem)(name, text)
        self._problems[name] = found


class Recount:
    """Counts the ledger anew, for ever, a slice at a time."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.drift_units: dict[str, int] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(RECOUNT_SECONDS)
            found: dict[str, int] = {}
            for at, name in enumerate(self._ledger.node_names()):
                if drift := self._ledger.drift_units(name):
                    found[name] = drift
                    log.error("ledger drift node=%s units=%d", name, drift)
                if at % RECOUNT_SLICE == 0:
                    await asyncio.sleep(0)
            self.drift_units = found


async def follow(pods: Reflector[PodObject], nodes: Reflector[NodeObject], freshness: Freshness) -> None:
    """Feed the ledger for ever. Nodes after the first list of pods: each is then counted once, not anew for every pod."""
    async with asyncio.TaskGroup() as group:
        group.create_task(pods.run())
        await freshness.listed("pods")
        group.create_task(nodes.run())


def reflectors(
    api: Api, ledger: Ledger, freshness: Freshness, watcher: Watcher, metrics: Metrics, settings: ExtenderConfiguration
) -> tuple[Reflector[PodObject], Reflector[NodeObject]]:
    """The two that feed the ledger."""
    pods = PodSink(ledger, freshness, watcher, metrics, settings.resources.memory)
    nodes = NodeSink(ledger, freshness, watcher, metrics, settings)
    return Reflector(api, "pods", PodObject, pods), Reflector(api, "nodes", NodeObject, nodes)
