"""What Nodes say about autoscalers: whether there are any, and which nodes are kept from them, by us or by somebody else.

    free --kept from them--> kept --its pods find cards elsewhere--> free
                              '--for too long, or somebody took the keys away--> ended --as above--> free

`vrampack.dev/kept-from-autoscalers` has the time since when a node is kept, or `ended`. A node where somebody else has set one of the
autoscalers' keys is not ours: nothing is written there.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from itertools import chain
from typing import NamedTuple

from vrampack.cards.well_known import KEPT_FROM_AUTOSCALERS
from vrampack.kube.examined_objects import ExaminedNodeSpec
from vrampack.kube.objects import NodeObject

AUTOSCALER_KEYS = ("karpenter.sh/do-not-disrupt", "cluster-autoscaler.kubernetes.io/scale-down-disabled")
"""Annotations of a Node by which Karpenter and the Cluster Autoscaler leave it alone."""
PREFIXES = ("karpenter.sh/", "cluster-autoscaler.kubernetes.io/")
"""Of labels and annotations that only nodes of clusters with an autoscaler have."""
TAINTS = ("DeletionCandidateOfClusterAutoscaler", "ToBeDeletedByClusterAutoscaler")
ENDED = "ended"


class Protection(Enum):
    """See the picture above."""

    FREE = "free"
    KEPT = "kept"
    ENDED = "ended"
    FOREIGN = "foreign"


class NodeMark(NamedTuple):
    state: Protection
    since: float = 0.0
    """Unix time, of a node that is kept; 0 if it cannot be read."""

    @property
    def is_ours(self) -> bool:
        """Whether the node has our annotation."""
        return self.state in (Protection.KEPT, Protection.ENDED)


FREE = NodeMark(Protection.FREE)


class NodeMarks:
    """Fed every node. Of nodes that are free only the version is stored."""

    def __init__(self) -> None:
        self.has_autoscaler = False
        """Whether any node has ever shown an autoscaler, or was kept from one by an earlier process."""
        self._marks: dict[str, NodeMark] = {}
        self._versions: dict[str, str] = {}

    def count_own(self) -> int:
        """How many nodes have our annotation."""
        return sum(mark.is_ours for mark in self._marks.values())

    def get_mark(self, name: str) -> NodeMark:
        return self._marks.get(name, FREE)

    def get_version(self, name: str) -> str:
        """The resourceVersion in which the node was seen last."""
        return self._versions.get(name, "")

    def list_marks(self) -> Mapping[str, NodeMark]:
        return self._marks

    def update_node(self, obj: NodeObject, spec: ExaminedNodeSpec) -> None:
        """`spec` is the node's, decoded."""
        name, annotations = obj.metadata.name, obj.metadata.annotations or {}
        mark = _read_mark(annotations)
        if not self.has_autoscaler:
            keys = chain(obj.metadata.labels or (), annotations)
            self.has_autoscaler = mark.is_ours or any(key.startswith(PREFIXES) for key in keys) or _has_taint(spec)
        self.put_mark(name, mark)
        self._versions[name] = obj.metadata.resource_version

    def put_mark(self, name: str, mark: NodeMark) -> None:
        """The node has this mark, as it showed itself or as we have just written it."""
        if mark.state is Protection.FREE:
            self._marks.pop(name, None)
        else:
            self._marks[name] = mark

    def remove_node(self, name: str) -> None:
        self._marks.pop(name, None)
        self._versions.pop(name, None)


def _read_mark(annotations: Mapping[str, str]) -> NodeMark:
    has_keys = any(key in annotations for key in AUTOSCALER_KEYS)
    since = annotations.get(KEPT_FROM_AUTOSCALERS)
    if since is None:
        return NodeMark(Protection.FOREIGN) if has_keys else FREE
    if not has_keys:
        return NodeMark(Protection.ENDED)
    return NodeMark(Protection.FOREIGN) if since == ENDED else NodeMark(Protection.KEPT, parse_time(since))


def parse_time(text: str) -> float:
    """Unix time; 0 if the text is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _has_taint(spec: ExaminedNodeSpec) -> bool:
    return any(taint.key in TAINTS for taint in spec.taints or ())
