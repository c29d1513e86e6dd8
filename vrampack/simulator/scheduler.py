"""The embedded scheduler: follows the store, and asks a real extender over real HTTP as a kube-scheduler would.

    scheduler = Scheduler(store, SchedulerSettings.from_yaml(text, url_prefix=extender_url))
    task = asyncio.create_task(scheduler.run())

One cycle at a time: own filters, one filter call with the nodes left, prioritize when two or more are left, the
highest total wins and among equals the first name. The pod is then assumed and bound in the background while the
next cycle runs. What the real one does with each failure, and when a pod is tried again, is done here too
(`scheduling/extender.py`, `scheduling/queue.py`); tests/simulator/recorded holds both to the same recordings.

Not modelled: preemption and nominated nodes, more than one extender, and scores of plugins, which are taken as
equal on all nodes; what a pod may state that bears on those is refused by name (`scheduling/filters.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from vrampack.simulator.errors import StatusError
from vrampack.simulator.kinds import POD, Object
from vrampack.simulator.scheduling.cluster import ClusterState
from vrampack.simulator.scheduling.extender import ExtenderClient, ExtenderError
from vrampack.simulator.scheduling.filters import refusals, unmodelled
from vrampack.simulator.scheduling.queue import Entry, Queue
from vrampack.simulator.scheduling.report import SCHEDULER_ERROR, UNSCHEDULABLE, Reporter, no_node_fits
from vrampack.simulator.scheduling.resources import names_any, requested, shortages
from vrampack.simulator.scheduling.settings import SchedulerSettings
from vrampack.simulator.scheduling.sync import Follower
from vrampack.simulator.store import Clock, Store

log = logging.getLogger(__name__)

__all__ = ["Scheduler", "SchedulerSettings"]

Sleep: TypeAlias = Callable[[float], Coroutine[object, object, None]]


@dataclass(frozen=True, slots=True)
class Refused:
    """No node fits, and why."""

    message: str


class Scheduler:
    """One scheduler process. `now` dates what it writes and counts back-off; `sleep` waits by the same clock."""

    def __init__(
        self,
        store: Store,
        settings: SchedulerSettings,
        *,
        now: Clock = lambda: datetime.now(UTC),
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._store = store
        self._settings = settings
        self._now = now
        self._sleep = sleep
        self._changed = asyncio.Event()
        store.subscribe(self._changed.set)

    async def run(self) -> None:
        """Schedule until cancelled. Started again, it knows nothing but what the store holds: a restart."""
        self._queue = Queue()
        self._cluster = ClusterState()
        self._reporter = Reporter(self._store, now=self._now)
        self._follower = Follower(
            self._store, self._cluster, self._queue, self._reporter, scheduler_names=self._settings.scheduler_names
        )
        async with ExtenderClient(self._settings) as self._extender, asyncio.TaskGroup() as self._binds:
            while True:
                self._changed.clear()
                self._follower.sync()
                entry = self._queue.pop(self._seconds())
                if entry is None:
                    await self._woken(self._queue.next_at())
                else:
                    await self._cycle(entry)
                    await asyncio.sleep(0)  # a refusal of its own took no await: others on this loop have their turn

    async def _cycle(self, entry: Entry) -> None:
        """One attempt to place one pod, up to the start of its bind."""
        pod = self._current(entry)
        if pod is None or not self._follower.is_ours(pod):
            return
        try:
            chosen = await self._choose(pod)
        except ExtenderError as error:
            self._fail(entry, str(error))
            return
        if isinstance(chosen, Refused):
            self._refuse(entry, chosen.message)
        else:
            self._cluster.assume(pod, chosen)
            self._binds.create_task(self._bind(entry, pod, chosen))

    async def _choose(self, pod: Object) -> str | Refused:
        """The node for this pod. Raises `ExtenderError`."""
        nodes = tuple(self._cluster.nodes)  # as they are now: they may change while the extender thinks
        if not nodes:
            return Refused("no nodes available to schedule pods")
        if name := unmodelled(pod):
            return Refused(f"0/{len(nodes)} nodes are available: {name} is not modelled by the embedded scheduler.")
        reasons = self._own_refusals(pod)
        names = [name for name in nodes if name not in reasons]
        is_sent = names_any(pod, self._settings.managed_resources)
        if names and is_sent:
            filtered = await self._extender.filter(pod, names)
            names = list(filtered.names)
            reasons |= {name: [reason] for name, reason in filtered.reasons.items()}
        if not names:
            return Refused(no_node_fits(len(nodes), (reason for each in reasons.values() for reason in each)))
        if len(names) == 1:
            return names[0]
        scores = await self._extender.prioritize(pod, names) if is_sent else {}
        return min(names, key=lambda name: (-scores.get(name, 0), name))

    def _own_refusals(self, pod: Object) -> dict[str, list[str]]:
        request, ignored = requested(pod), self._settings.ignored_resources
        found = {}
        for name, node in self._cluster.nodes.items():
            room = self._cluster.room(name)
            found[name] = refusals(pod, node) or shortages(request, room, ignored=ignored)
        return {name: why for name, why in found.items() if why}

    async def _bind(self, entry: Entry, pod: Object, node: str) -> None:
        try:
            if self._settings.bind_verb and names_any(pod, self._settings.managed_resources):
                await self._extender.bind(pod, node)
            else:
                self._bind_in_store(pod, node)
        except (ExtenderError, StatusError) as error:
            if self._cluster.forget(entry.uid):
                self._queue.wake_all()
            self._fail(entry, str(error))
        else:
            log.info("scheduled pod=%s/%s node=%s", entry.namespace, entry.name, node)
            self._reporter.scheduled(pod, node)
        self._changed.set()

    def _bind_in_store(self, pod: Object, node: str) -> None:
        """The scheduler's own binder, for pods that the extender does not see."""
        metadata = pod["metadata"]
        binding = {
            "metadata": {key: metadata[key] for key in ("name", "namespace", "uid")},
            "target": {"kind": "Node", "name": node},
        }
        self._store.bind(metadata["namespace"], metadata["name"], binding)

    def _refuse(self, entry: Entry, message: str) -> None:
        self._queue.refuse(entry, self._seconds())
        self._report(entry, reason=UNSCHEDULABLE, message=message)

    def _fail(self, entry: Entry, message: str) -> None:
        self._queue.fail(entry, self._seconds())
        self._report(entry, reason=SCHEDULER_ERROR, message=message)

    def _report(self, entry: Entry, *, reason: str, message: str) -> None:
        """Also of a pod that was bound after all: its condition then lies, as it does by the real scheduler."""
        log.info("not scheduled pod=%s/%s reason=%s message=%s", entry.namespace, entry.name, reason, message)
        pod = self._current(entry)
        if pod is not None:
            self._reporter.failed(pod, reason=reason, message=message)

    def _current(self, entry: Entry) -> Object | None:
        """The pod as it is now; None when it is gone."""
        try:
            pod = self._store.get(POD, entry.namespace, entry.name)
        except StatusError:
            return None
        return pod if pod["metadata"]["uid"] == entry.uid else None

    async def _woken(self, at: float | None) -> None:
        """Until something changes or, by our clock, it is `at`."""
        waits: list[asyncio.Task[object]] = [asyncio.create_task(self._changed.wait())]
        if at is not None:
            waits.append(asyncio.create_task(self._sleep(max(0.0, at - self._seconds()))))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    def _seconds(self) -> float:
        return self._now().timestamp()
