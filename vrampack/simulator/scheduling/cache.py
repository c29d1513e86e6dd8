"""What the scheduler knows about the cluster: nodes, and how much of each bound and assumed pods take."""

from __future__ import annotations

from vrampack.simulator.resource_kinds import Object
from vrampack.simulator.scheduling.resources import Amounts, NodeResources, parse_amounts, sum_pod_requests


class SchedulerCache:
    """Changed by what the API shows, and by `assume_pod` for a pod whose bind is under way."""

    def __init__(self) -> None:
        self.nodes: dict[str, Object] = {}
        self._allocatable: dict[str, Amounts] = {}
        self._assignments: dict[str, tuple[str, Amounts]] = {}
        self._assumed: set[str] = set()
        self._used: dict[str, dict[str, int]] = {}

    def get_node_resources(self, node: str) -> NodeResources:
        return NodeResources(self._allocatable[node], self._used.get(node, {}))

    def set_node(self, node: Object) -> None:
        name = node["metadata"]["name"]
        self.nodes[name] = node
        self._allocatable[name] = parse_amounts((node.get("status") or {}).get("allocatable"))

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
        node, request = held
        used = self._used[node]
        for name, amount in request.items():
            used[name] -= amount

    def _charge_pod(self, pod: Object, node: str) -> None:
        request = sum_pod_requests(pod)
        self._assignments[pod["metadata"]["uid"]] = (node, request)
        used = self._used.setdefault(node, {})
        for name, amount in request.items():
            used[name] = used.get(name, 0) + amount
