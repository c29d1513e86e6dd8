"""Carries the store's changes into the scheduler's cache and queue.

Refused pods are activated by what the real scheduler calls a cluster event: a node that is new, gone or changed in a way that
affects scheduling (a status report alone does not); a bound pod that is new, changed or gone. A pending pod's own change
activates only that pod. So a refused pod is tried a second time right after its condition is written, as by the real
scheduler, but not a third time, because the condition then stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection

from vrampack.simulator.errors import StatusError
from vrampack.simulator.object_store import ObjectStore, StoreChange
from vrampack.simulator.owned_pods import is_finished
from vrampack.simulator.resource_kinds import NODE, POD, Object, ResourceKind
from vrampack.simulator.scheduling.cache import SchedulerCache
from vrampack.simulator.scheduling.pod_reporter import PodReporter
from vrampack.simulator.scheduling.scheduling_queue import SchedulingQueue


class StoreFollower:
    """Reads the store's log from where it last stopped."""

    def __init__(
        self,
        store: ObjectStore,
        cluster: SchedulerCache,
        queue: SchedulingQueue,
        reporter: PodReporter,
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

    def apply_changes(self) -> None:
        """Apply all changes since the last call. If the log no longer goes back far enough, list everything again."""
        if self._version == self._store.version:
            return
        try:
            found = [*self._read_changes(NODE), *self._read_changes(POD)] if self._version else None
        except StatusError:
            found = None
        if found is None:
            self._relist()
        else:
            for change in sorted(found, key=lambda each: each.version):
                self._apply_change(change)
        self._version = self._store.version

    def is_responsible_for(self, pod: Object) -> bool:
        """Whether this scheduler should find a node for it."""
        return (
            not pod["spec"].get("nodeName")
            and "deletionTimestamp" not in pod["metadata"]
            and pod["spec"].get("schedulerName", "default-scheduler") in self._scheduler_names
            and not pod["spec"].get("schedulingGates")
            and not is_finished(pod)
        )

    def _read_changes(self, kind: ResourceKind) -> list[StoreChange]:
        return self._store.read_changes_since(self._version, kind, None)

    def _relist(self) -> None:
        nodes = {node["metadata"]["name"]: node for node in self._store.read_page(NODE, None).items}
        pods = {pod["metadata"]["uid"]: pod for pod in self._store.read_page(POD, None).items}
        for name in self._cluster.nodes.keys() - nodes.keys():
            self._remove_node(name)
        for node in nodes.values():
            self._set_node(node)
        for uid in self._pods.keys() - pods.keys():
            self._remove_pod(self._pods[uid])
        for pod in pods.values():
            if self._pods.get(pod["metadata"]["uid"]) != pod:
                self._set_pod(pod)

    def _apply_change(self, change: StoreChange) -> None:
        item, is_gone = change.item, change.change_type == "DELETED"
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
        if old is None or _read_scheduling_fields(old) != _read_scheduling_fields(node):
            self._queue.activate_all()

    def _remove_node(self, name: str) -> None:
        self._cluster.remove_node(name)
        self._queue.activate_all()

    def _set_pod(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        self._pods[uid] = pod
        if is_finished(pod):
            self._remove_from_cache(uid)
        elif pod["spec"].get("nodeName"):
            self._queue.remove_pod(uid)
            self._cluster.set_pod(pod)
            self._queue.activate_all()
        elif not self.is_responsible_for(pod):
            self._queue.remove_pod(uid)
        elif not self._cluster.is_assumed(uid):
            self._queue.add_pod(pod)

    def _remove_pod(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        self._pods.pop(uid, None)
        self._reporter.forget_pod(uid)
        self._remove_from_cache(uid)

    def _remove_from_cache(self, uid: str) -> None:
        self._queue.remove_pod(uid)
        if self._cluster.has_pod(uid):
            self._cluster.remove_pod(uid)
            self._queue.activate_all()


def _read_scheduling_fields(node: Object) -> object:
    """The fields of a node whose changes are scheduler events: not the times in its conditions, nor its images."""
    metadata, status = node["metadata"], node.get("status") or {}
    conditions = {each.get("type"): each.get("status") for each in status.get("conditions") or []}
    return (
        metadata.get("labels"),
        metadata.get("annotations"),
        node.get("spec"),
        status.get("allocatable"),
        conditions,
    )
