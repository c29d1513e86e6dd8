"""Which nodes each pod may use, by its own selector, node affinity and tolerations: the part of it that two scheduler's filters read.

Pods of one workload are alike in these, so each distinct set is decoded once, and compared once with each node until that changes.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

import msgspec

from vrampack.cards.pod import Pod
from vrampack.cards.well_known import ENFORCEMENT
from vrampack.kube.decoding import NULL, UNDECODABLE
from vrampack.kube.examined_objects import ExaminedNode, ExaminedNodeSpec, ExaminedPodSpec
from vrampack.kube.node_filters import find_placement_obstacle
from vrampack.kube.objects import NodeObject, ObjectMeta, PodSpec

HOSTNAME = "kubernetes.io/hostname"
MAX_DECODED = 4096

MANY_KEYS = 64

RuleKey = tuple[bytes, bytes, bytes]
"""As JSON: `nodeSelector`, the required node affinity, `tolerations`."""


class _RequiredAffinity(msgspec.Struct, frozen=True):
    required: msgspec.Raw = msgspec.field(default=NULL, name="requiredDuringSchedulingIgnoredDuringExecution")


class _AffinityPart(msgspec.Struct, frozen=True, rename="camel"):
    node_affinity: _RequiredAffinity | None = None


_AFFINITY = msgspec.json.Decoder(_AffinityPart | None)
_POD_SPEC = msgspec.json.Decoder(ExaminedPodSpec)


class NodeRules:
    """Of the pods that ask for cards, and the nodes that offer any or will soon, because an agent is there."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self.generation = 0
        """Rises with every change to a node's labels or taints."""
        self._pods: dict[str, RuleKey] = {}
        self._nodes: dict[str, ExaminedNode] = {}
        self._verdicts: dict[str, dict[RuleKey, bool]] = {}
        """By node."""
        self._judged: set[RuleKey] = set()
        """What `_verdicts` may be about."""
        self._newest_at = ""
        """When the newest node with an agent was made."""

    def update_pod(self, pod: Pod, spec: PodSpec) -> None:
        """The pod asks for cards."""
        if pod.is_finished:
            self.remove_pod(pod.uid)
            return
        self._pods[pod.uid] = (bytes(spec.node_selector), _read_affinity(spec.affinity), bytes(spec.tolerations))

    def remove_pod(self, uid: str) -> None:
        self._pods.pop(uid, None)

    def keep_pods(self, uids: Collection[str]) -> None:
        """Forget all but these."""
        self._pods = {uid: key for uid, key in self._pods.items() if uid in uids}

    def forget_old_verdicts(self) -> None:
        """Once most are about pods that are gone: jobs without end may each have rules of their own."""
        if len(self._judged) > 2 * len(used := set(self._pods.values())) + MANY_KEYS:
            self._judged &= used
            self._verdicts = {name: {} for name in self._nodes}

    def update_node(self, obj: NodeObject, spec: ExaminedNodeSpec) -> None:
        """`spec` is the node's, decoded."""
        seen = obj.metadata
        name = seen.name
        if self._resource not in (obj.status.allocatable or {}) and ENFORCEMENT not in (seen.labels or {}):
            self.remove_node(name)
            return
        kept = ObjectMeta(name=name, labels=seen.labels, creation_timestamp=seen.creation_timestamp)
        node = ExaminedNode(kept, spec=spec)
        if self._nodes.get(name) != node:
            self.generation += 1
            self._nodes[name] = node
            if _has_agent(node):
                self._newest_at = max(self._newest_at, seen.creation_timestamp or "")
            self._verdicts[name] = {}

    def remove_node(self, name: str) -> None:
        if self._nodes.pop(name, None) is not None:
            self.generation += 1
            del self._verdicts[name]

    def find_key(self, uid: str) -> RuleKey | None:
        """Pods with equal keys may use the same nodes."""
        return self._pods.get(uid)

    def may_use(self, key: RuleKey | None, node_name: str, *, is_remembered: bool = True) -> bool:
        """False if either is unknown. A verdict that is not remembered needs no memory."""
        node = self._nodes.get(node_name)
        if node is None or key is None:
            return False
        verdicts = self._verdicts[node_name]
        verdict = verdicts.get(key)
        if verdict is None:
            spec = _decode_spec(key)
            verdict = spec is not None and not find_placement_obstacle(spec, node)
            if is_remembered:
                verdicts[key] = verdict
                self._judged.add(key)
        return verdict

    def has_new_node(self, key: RuleKey, since: str) -> bool:
        """Whether a node with an agent that such pods may use was made after this time, in the API server's form."""
        return self._newest_at > since and any(
            (node.metadata.creation_timestamp or "") > since and _has_agent(node) and self.may_use(key, name)
            for name, node in self._nodes.items()
        )

    def get_hostname(self, name: str) -> str:
        """The node's label of this name, which need not be the node's own name."""
        node = self._nodes.get(name)
        return name if node is None else (node.metadata.labels or {}).get(HOSTNAME, name)

    def stays_with_its_node(self, uid: str) -> bool:
        """Whether the pod names the one node on which it may be, as a DaemonSet's does: it ends with that node."""
        key = self._pods.get(uid)
        spec = None if key is None else _decode_spec(key)
        return spec is not None and spec.names_its_node


def may_use_new_node(key: RuleKey, unusable_labels: Collection[str]) -> bool:
    """Whether a node that has yet to be made may do: the pod names no node, and its rules name none of these labels."""
    spec = _decode_spec(key)
    return spec is not None and not spec.names_its_node and spec.label_keys.isdisjoint(unusable_labels)


def _has_agent(node: ExaminedNode) -> bool:
    return ENFORCEMENT in (node.metadata.labels or {})


def _read_affinity(affinity: msgspec.Raw) -> bytes:
    """Preferences and rules about other pods differ from job to job, and decide nothing here."""
    try:
        part = _AFFINITY.decode(affinity)
    except UNDECODABLE:
        return bytes(affinity)  # no node selects it
    return bytes(NULL if part is None or part.node_affinity is None else part.node_affinity.required)


@lru_cache(MAX_DECODED)
def _decode_spec(key: RuleKey) -> ExaminedPodSpec | None:
    try:
        return _POD_SPEC.decode(
            b'{"nodeSelector":%b,"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":%b}},'
            b'"tolerations":%b}' % key
        )
    except UNDECODABLE:
        return None
