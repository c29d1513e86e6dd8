"""Carries what changed in the store into the scheduler's picture of the cluster and its queue.

What wakes refused pods is what the real scheduler calls a cluster event: a node that is new, gone or changed in a way that
bears on scheduling (its status report alone does not); a bound pod that is new, changed or gone. A pending pod's
own change wakes that pod alone: so a refused pod is tried a second time right after its condition is written, as
by the real scheduler, and not a third time, because the condition then stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection

from vrampack.simulator.errors import StatusError
from vrampack.simulator.kinds import NODE, POD, Kind, Object
from vrampack.simulator.scheduling.cluster import ClusterState
from vrampack.simulator.scheduling.queue import Queue
from vrampack.simulator.scheduling.report import Reporter
from vrampack.simulator.store import Change, Store

FINISHED = ("Succeeded", "Failed")


class Follower:
    """Reads the store's log from where it last stopped."""

    def __init__(
        self,
        store: Store,
        cluster: ClusterState,
        queue: Queue,
        reporter: Reporter,
        *,
        scheduler_names: Collection[str],
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._queue = queue
        self._reporter = reporter
        self._scheduler_names = scheduler_names
        self._pods: dict[str, Object] = {}
        self._version = 0

    def sync(self) -> None:
        """Catch up. Where the log no longer goes back far enough, everything is read anew."""
        if self._version == self._store.version:
            return
        try:
            found = [*self._changes(NODE), *self._changes(POD)] if self._version else None
        except StatusError:
            found = None
        if found is None:
            self._relist()
        else:
            for change in sorted(found, key=lambda each: each.version):
                self._apply(change)
        self._version = self._store.version

    def is_ours(self, pod: Object) -> bool:
        """Whether this scheduler should find a node for it."""
        return (
            not pod["spec"].get("nodeName")
            and "deletionTimestamp" not in pod["metadata"]
            and pod["spec"].get("schedulerName", "default-scheduler") in self._scheduler_names
            and not pod["spec"].get("schedulingGates")
            and pod["status"].get("phase") not in FINISHED
        )

    def _changes(self, kind: Kind) -> list[Change]:
        return self._store.changes_since(self._version, kind, None)

    def _relist(self) -> None:
        nodes = {node["metadata"]["name"]: node for node in self._store.page(NODE, None).items}
        pods = {pod["metadata"]["uid"]: pod for pod in self._store.page(POD, None).items}
        for name in self._cluster.nodes.keys() - nodes.keys():
            self._remove_node(name)
        for node in nodes.values():
            self._set_node(node)
        for uid in self._pods.keys() - pods.keys():
            self._remove_pod(self._pods[uid])
        for pod in pods.values():
            if self._pods.get(pod["metadata"]["uid"]) != pod:
                self._set_pod(pod)

    def _apply(self, change: Change) -> None:
        item, is_gone = change.item, change.type == "DELETED"
        if change.kind is POD:
            (self._remove_pod if is_gone else self._set_pod)(item)
        elif is_gone:
            self._remove_node(item["metadata"]["name"])
        else:
            self._set_node(item)

    def _set_node(self, node: Object) -> None:
        name = node["metadata"]["name"]
        old = self._cluster.nodes.get(name)
        self._cluster.set_node(node)
        if old is None or _bearing_on_scheduling(old) != _bearing_on_scheduling(node):
            self._queue.wake_all()

    def _remove_node(self, name: str) -> None:
        self._cluster.remove_node(name)
        self._queue.wake_all()

    def _set_pod(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        self._pods[uid] = pod
        if pod["status"].get("phase") in FINISHED:
            self._take_out(uid)
        elif pod["spec"].get("nodeName"):
            self._queue.remove(uid)
            self._cluster.set_pod(pod)
            self._queue.wake_all()
        elif not self.is_ours(pod):
            self._queue.remove(uid)
        elif not self._cluster.is_assumed(uid):
            self._queue.put(pod)

    def _remove_pod(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        self._pods.pop(uid, None)
        self._reporter.forget(uid)
        self._take_out(uid)

    def _take_out(self, uid: str) -> None:
        self._queue.remove(uid)
        if self._cluster.is_held(uid):
            self._cluster.remove_pod(uid)
            self._queue.wake_all()


def _bearing_on_scheduling(node: Object) -> object:
    """What of a node a scheduler's events are made of: not the times in its conditions, not its images."""
    metadata, status = node["metadata"], node.get("status") or {}
    conditions = {each.get("type"): each.get("status") for each in status.get("conditions") or []}
    return (
        metadata.get("labels"),
        metadata.get("annotations"),
        node.get("spec"),
        status.get("allocatable"),
        conditions,
    )
