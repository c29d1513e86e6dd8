"""Which nodes each pod may use, by its own selector, node affinity and tolerations: the part of it that two scheduler's filters read.

Pods of one workload are alike in these, so each distinct set is decoded once, and compared once with each node until that changes.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

import msgspec

from vrampack.kube.decoding import UNDECODABLE
from vrampack.kube.examined_objects import ExaminedNode, ExaminedPodSpec, decode_node_spec
from vrampack.kube.node_filters import find_placement_obstacle
from vrampack.kube.objects import NodeObject, ObjectMeta, PodSpec

MAX_DECODED = 4096

RuleKey = tuple[bytes, bytes, bytes]
"""As JSON: `nodeSelector`, `affinity`, `tolerations`."""
_POD_SPEC = msgspec.json.Decoder(ExaminedPodSpec)


class NodeRules:
    """Of the pods that ask for cards, and the nodes that offer any."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self.generation = 0
        """Rises with every change to a node's labels or taints."""
        self._pods: dict[str, RuleKey] = {}
        self._nodes: dict[str, ExaminedNode] = {}
        self._verdicts: dict[str, dict[RuleKey, bool]] = {}
        """By node."""

    def update_pod(self, uid: str, spec: PodSpec) -> None:
        """The pod asks for cards."""
        self._pods[uid] = (bytes(spec.node_selector), bytes(spec.affinity), bytes(spec.tolerations))

    def keep_pods(self, uids: Collection[str]) -> None:
        """Forget all but these."""
        self._pods = {uid: key for uid, key in self._pods.items() if uid in uids}

    def update_node(self, obj: NodeObject) -> None:
        name = obj.metadata.name
        if self._resource not in (obj.status.allocatable or {}):
            self.remove_node(name)
            return
        node = ExaminedNode(ObjectMeta(name=name, labels=obj.metadata.labels), spec=decode_node_spec(obj))
        if self._nodes.get(name) != node:
            self.generation += 1
            self._nodes[name] = node
            self._verdicts[name] = {}

    def remove_node(self, name: str) -> None:
        if self._nodes.pop(name, None) is not None:
            self.generation += 1
            del self._verdicts[name]

    def find_key(self, uid: str) -> RuleKey | None:
        """Pods with equal keys may use the same nodes."""
        return self._pods.get(uid)

    def may_use(self, key: RuleKey | None, node_name: str) -> bool:
        """False if either is unknown."""
        node = self._nodes.get(node_name)
        if node is None or key is None:
            return False
        verdicts = self._verdicts[node_name]
        if key not in verdicts:
            spec = _decode_spec(key)
            verdicts[key] = spec is not None and not find_placement_obstacle(spec, node)
        return verdicts[key]

    def stays_with_its_node(self, uid: str) -> bool:
        """Whether the pod names the one node on which it may be, as a DaemonSet's does: it ends with that node."""
        key = self._pods.get(uid)
        spec = None if key is None else _decode_spec(key)
        return spec is not None and spec.names_its_node


@lru_cache(MAX_DECODED)
def _decode_spec(key: RuleKey) -> ExaminedPodSpec | None:
    try:
        return _POD_SPEC.decode(b'{"nodeSelector":%b,"affinity":%b,"tolerations":%b}' % key)
    except UNDECODABLE:
        return None
