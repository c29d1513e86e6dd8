"""What the scheduler knows about the cluster: nodes, and how much of each bound and assumed pods take."""

from __future__ import annotations

from collections.abc import Collection

from vrampack.kube.decoding import UNDECODABLE
from vrampack.kube.examined_objects import ExaminedNode, ExaminedPodSpec
from vrampack.kube.node_filters import HostUse, list_reasons, read_allocatable, read_host_use
from vrampack.simulator.resource_kinds import Object
from vrampack.simulator.scheduling.filters import decode_node, decode_spec


class SchedulerCache:
    """Changed by what the API shows, and by `assume_pod` for a pod whose bind is under way."""

    def __init__(self) -> None:
        self.nodes: dict[str, Object] = {}
        self._examined: dict[str, ExaminedNode] = {}
        self._assignments: dict[str, tuple[str, HostUse]] = {}
        self._assumed: set[str] = set()
        self._used: dict[str, HostUse] = {}

    def list_reasons(self, spec: ExaminedPodSpec, name: str, *, ignored: Collection[str]) -> list[str]:
        """Why the scheduler's own filters reject the node; empty if they do not."""
        node, used = self._examined[name], self._used.get(name, HostUse())
        return list_reasons(spec, node, read_allocatable(node), used, ignored=ignored)

    def set_node(self, node: Object) -> None:
        name = node["metadata"]["name"]
        self.nodes[name] = node
        self._examined[name] = _examine_node(node)

    def remove_node(self, name: str) -> None:
        """Remove the node. Its pods are remembered, as it may come back."""
        self.nodes.pop(name, None)

    def has_pod(self, uid: str) -> bool:
        return uid in self._assignments

    def is_assumed(self, uid: str) -> bool:
        return uid in self._assumed

    def set_pod(self, pod: Object) -> None:
        """The API shows the pod as bound, which replaces any assumption."""
        self.remove_pod(pod["metadata"]["uid"])
        self._charge_pod(pod, pod["spec"]["nodeName"])

    def assume_pod(self, pod: Object, node: str) -> None:
        self._charge_pod(pod, node)
        self._assumed.add(pod["metadata"]["uid"])

    def forget_pod(self, uid: str) -> bool:
        """Drop an assumption; False if the API has meanwhile shown the pod as bound or gone."""
        if uid not in self._assumed:
            return False
        self.remove_pod(uid)
        return True

    def remove_pod(self, uid: str) -> None:
        self._assumed.discard(uid)
        held = self._assignments.pop(uid, None)
        if held is None:
            return
        node, use = held
        self._used[node] -= use

    def _charge_pod(self, pod: Object, node: str) -> None:
        use = _read_use(pod)
        self._assignments[pod["metadata"]["uid"]] = (node, use)
        self._used[node] = self._used.get(node, HostUse()) + use


def _examine_node(node: Object) -> ExaminedNode:
    """One that cannot be read takes no pods."""
    try:
        return decode_node(node)
    except UNDECODABLE:
        return ExaminedNode()


def _read_use(pod: Object) -> HostUse:
    """One that cannot be read, and that somebody bound, takes nothing."""
    try:
        return read_host_use(decode_spec(pod))
    except UNDECODABLE:
        return HostUse()
