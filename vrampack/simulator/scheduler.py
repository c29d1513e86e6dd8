"""The embedded scheduler: follows the store, and asks a real extender over HTTP as a kube-scheduler would.

    scheduler = Scheduler(store, SchedulerSettings.from_yaml(text, url_prefix=extender_url))
    task = asyncio.create_task(scheduler.run())

One cycle at a time: own filters, one filter call with the remaining nodes, prioritize if two or more remain; the
highest total wins, and among equals the first name. The pod is then assumed and bound in the background while the
next cycle runs. It handles each failure and retries pods like the real scheduler
(`scheduling/extender_client.py`, `scheduling/scheduling_queue.py`); tests/simulator/recorded checks both against the same recordings.

Not modelled: preemption and nominated nodes, more than one extender, and scores of plugins, which count as equal on all
nodes; pods with fields that affect these are refused, with the name of the field (`scheduling/filters.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from vrampack.simulator.errors import StatusError
from vrampack.simulator.object_store import Clock, ObjectStore
from vrampack.simulator.resource_kinds import POD, Object
from vrampack.simulator.scheduling.cache import SchedulerCache
from vrampack.simulator.scheduling.extender_client import ExtenderClient, ExtenderError
from vrampack.simulator.scheduling.filters import decode_spec, find_unmodelled_field, requests_any
from vrampack.simulator.scheduling.pod_reporter import SCHEDULER_ERROR, UNSCHEDULABLE, PodReporter, format_fit_error
from vrampack.simulator.scheduling.scheduling_queue import QueuedPod, SchedulingQueue
from vrampack.simulator.scheduling.settings import SchedulerSettings
from vrampack.simulator.scheduling.store_follower import StoreFollower

log = logging.getLogger(__name__)

__all__ = ["Scheduler", "SchedulerSettings"]

SleepFunction: TypeAlias = Callable[[float], Coroutine[object, object, None]]


@dataclass(frozen=True, slots=True)
class NoFit:
    """No node fits, and why."""

    message: str


class Scheduler:
    """One scheduler process. `now` is for timestamps and back-off; `sleep` waits by the same clock."""

    def __init__(
        self,
        store: ObjectStore,
        settings: SchedulerSettings,
        *,
        now: Clock = lambda: datetime.now(UTC),
        sleep: SleepFunction = asyncio.sleep,
    ) -> None:
        self._store = store
        self._settings = settings
        self._now = now
        self._sleep = sleep
        self._changed = asyncio.Event()
        store.subscribe(self._changed.set)

    async def run(self) -> None:
        """Schedule until cancelled. When run again it knows only what the store has, as after a restart."""
        self._queue = SchedulingQueue()
        self._cache = SchedulerCache()
        self._reporter = PodReporter(self._store, now=self._now)
        self._event_handler = StoreFollower(
            self._store, self._cache, self._queue, self._reporter, scheduler_names=self._settings.scheduler_names
        )
        async with ExtenderClient(self._settings) as self._extender, asyncio.TaskGroup() as self._binds:
            while True:
                self._changed.clear()
                self._event_handler.apply_changes()
                entry = self._queue.pop_pod(self._now_seconds())
                if entry is None:
                    await self._wait_for_change(self._queue.next_attempt_at())
                else:
                    await self._schedule_one(entry)
                    await asyncio.sleep(0)  # a refusal by its own filters does not await: let other tasks run

    async def _schedule_one(self, entry: QueuedPod) -> None:
        """One attempt to place one pod, up to the start of its bind."""
        pod = self._get_current_pod(entry)
        if pod is None or not self._event_handler.is_responsible_for(pod):
            return
        try:
            chosen = await self._select_node(pod)
        except ExtenderError as error:
            self._requeue_failed(entry, str(error))
            return
        if isinstance(chosen, NoFit):
            self._requeue_unschedulable(entry, chosen.message)
        else:
            self._cache.assume_pod(pod, chosen)
            self._binds.create_task(self._bind(entry, pod, chosen))

    async def _select_node(self, pod: Object) -> str | NoFit:
        """The node for this pod. Raises `ExtenderError`."""
        nodes = tuple(self._cache.nodes)  # a copy, as they may change while the extender answers
        if not nodes:
            return NoFit("no nodes available to schedule pods")
        if name := find_unmodelled_field(pod):
            return NoFit(f"0/{len(nodes)} nodes are available: {name} is not modelled by the embedded scheduler.")
        reasons = self._run_own_filters(pod)
        names = [name for name in nodes if name not in reasons]
        is_sent = requests_any(pod, self._settings.managed_resources)
        if names and is_sent:
            filtered = await self._extender.filter(pod, names)
            names = list(filtered.names)
            reasons |= {name: [reason] for name, reason in filtered.reasons.items()}
        if not names:
            return NoFit(format_fit_error(len(nodes), (reason for each in reasons.values() for reason in each)))
        if len(names) == 1:
            return names[0]
        scores = await self._extender.prioritize(pod, names) if is_sent else {}
        return min(names, key=lambda name: (-scores.get(name, 0), name))

    def _run_own_filters(self, pod: Object) -> dict[str, list[str]]:
        spec, ignored = decode_spec(pod), self._settings.ignored_resources
        found = {name: self._cache.list_reasons(spec, name, ignored=ignored) for name in self._cache.nodes}
        return {name: why for name, why in found.items() if why}

    async def _bind(self, entry: QueuedPod, pod: Object, node: str) -> None:
        try:
            if self._settings.bind_verb and requests_any(pod, self._settings.managed_resources):
                await self._extender.bind(pod, node)
            else:
                self._bind_in_store(pod, node)
        except (ExtenderError, StatusError) as error:
            if self._cache.forget_pod(entry.uid):
                self._queue.activate_all()
            self._requeue_failed(entry, str(error))
        else:
            log.info("pod scheduled pod=%s/%s node=%s", entry.namespace, entry.name, node)
            self._reporter.report_scheduled(pod, node)
        self._changed.set()

    def _bind_in_store(self, pod: Object, node: str) -> None:
        """Bind by the scheduler's own binder, for pods that are not sent to the extender."""
        metadata = pod["metadata"]
        binding = {
            "metadata": {key: metadata[key] for key in ("name", "namespace", "uid")},
            "target": {"kind": "Node", "name": node},
        }
        self._store.bind(metadata["namespace"], metadata["name"], binding)

    def _requeue_unschedulable(self, entry: QueuedPod, message: str) -> None:
        self._queue.requeue_unschedulable(entry, self._now_seconds())
        self._report(entry, reason=UNSCHEDULABLE, message=message)

    def _requeue_failed(self, entry: QueuedPod, message: str) -> None:
        self._queue.requeue_failed(entry, self._now_seconds())
        self._report(entry, reason=SCHEDULER_ERROR, message=message)

    def _report(self, entry: QueuedPod, *, reason: str, message: str) -> None:
        """Report a failure, even for a pod that was bound after all: its condition is then wrong, as in the real scheduler."""
        log.info("pod not scheduled pod=%s/%s reason=%s message=%s", entry.namespace, entry.name, reason, message)
        pod = self._get_current_pod(entry)
        if pod is not None:
            self._reporter.report_failure(pod, reason=reason, message=message)

    def _get_current_pod(self, entry: QueuedPod) -> Object | None:
        """The pod as it is now; None when it is gone."""
        try:
            pod = self._store.get(POD, entry.namespace, entry.name)
        except StatusError:
            return None
        return pod if pod["metadata"]["uid"] == entry.uid else None

    async def _wait_for_change(self, deadline: float | None) -> None:
        """Wait until something changes or, by our clock, the deadline is reached."""
        waits: list[asyncio.Task[object]] = [asyncio.create_task(self._changed.wait())]
        if deadline is not None:
            waits.append(asyncio.create_task(self._sleep(max(0.0, deadline - self._now_seconds()))))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    def _now_seconds(self) -> float:
        return self._now().timestamp()
