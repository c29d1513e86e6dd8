"""What the scheduler knows of the cluster: nodes, and how much of each is taken by pods that are bound or assumed."""

from __future__ import annotations

from vrampack.simulator.kinds import Object
from vrampack.simulator.scheduling.resources import Amounts, Room, amounts, requested


class ClusterState:
    """Changed by what the API shows, and by `assume` for a pod whose bind is on its way."""

    def __init__(self) -> None:
        self.nodes: dict[str, Object] = {}
        self._allocatable: dict[str, Amounts] = {}
        self._held: dict[str, tuple[str, Amounts]] = {}
        self._assumed: set[str] = set()
        self._used: dict[str, dict[str, int]] = {}

    def room(self, node: str) -> Room:
        return Room(self._allocatable[node], self._used.get(node, {}))

    def set_node(self, node: Object) -> None:
        name = node["metadata"]["name"]
        self.nodes[name] = node
        self._allocatable[name] = amounts((node.get("status") or {}).get("allocatable"))

    def remove_node(self, name: str) -> None:
        """Pods on it are remembered: it may come back."""
        self.nodes.pop(name, None)

    def is_held(self, uid: str) -> bool:
        return uid in self._held

    def is_assumed(self, uid: str) -> bool:
        return uid in self._assumed

    def set_pod(self, pod: Object) -> None:
        """The API shows it bound: that counts from now on, whatever was assumed."""
        self.remove_pod(pod["metadata"]["uid"])
        self._hold(pod, pod["spec"]["nodeName"])

    def assume(self, pod: Object, node: str) -> None:
        self._hold(pod, node)
        self._assumed.add(pod["metadata"]["uid"])

    def forget(self, uid: str) -> bool:
        """Take an assumption back; False where the API has meanwhile shown the pod bound, or gone."""
        if uid not in self._assumed:
            return False
        self.remove_pod(uid)
        return True

    def remove_pod(self, uid: str) -> None:
        self._assumed.discard(uid)
        held = self._held.pop(uid, None)
        if held is None:
            return
        node, request = held
        used = self._used[node]
        for name, amount in request.items():
            used[name] -= amount

    def _hold(self, pod: Object, node: str) -> None:
        request = requested(pod)
        self._held[pod["metadata"]["uid"]] = (node, request)
        used = self._used.setdefault(node, {})
        for name, amount in request.items():
            used[name] = used.get(name, 0) + amount
