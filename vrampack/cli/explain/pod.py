"""What a pod and a node say to the scheduler: decoded for the one pod that is explained, and for its nodes.

The extender reads none of this; it is here to name what keeps a pod away from a node on which it has room.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from vrampack.cards.pod import Pod
from vrampack.cli.explain.form import State


class Toleration(msgspec.Struct, frozen=True):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None

    def accepts(self, taint: Taint) -> bool:
        """As the scheduler decides it; an operator that is not known here is taken to accept."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return (self.operator or "Equal") != "Equal" or (self.value or "") == (taint.value or "")


class Taint(msgspec.Struct, frozen=True):
    key: str = ""
    value: str | None = None
    effect: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Named(msgspec.Struct, frozen=True):
    name: str = ""


class Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    scheduler_name: str | None = None
    scheduling_gates: list[Named] | None = None
    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str | None = None
    conditions: list[Condition] | None = None
    nominated_node_name: str | None = None


class PodWords(msgspec.Struct, frozen=True):
    """The parts of a v1.Pod that the scheduler reads and writes."""

    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def scheduler_name(self) -> str:
        return self.spec.scheduler_name or "default-scheduler"

    @property
    def gates(self) -> tuple[str, ...]:
        return tuple(gate.name for gate in self.spec.scheduling_gates or ())

    @property
    def refusal(self) -> Condition | None:
        """What the scheduler said at its last attempt; None before the first, and once the pod is bound."""
        conditions = self.status.conditions or ()
        return next((each for each in conditions if each.type == "PodScheduled" and each.status == "False"), None)


@dataclass(frozen=True, slots=True)
class Subject:
    """The pod that is explained: as the extender reads it, and what only the scheduler reads."""

    pod: Pod
    words: PodWords
    annotations: Mapping[str, str]

    @property
    def state(self) -> State:
        if self.pod.is_finished:
            return "finished"
        if self.pod.node_name:
            return "bound" if self.pod.can_hold_memory else "asks-nothing"
        if self.pod.request is None:
            return "asks-nothing"
        if self.pod.is_terminating:
            return "deleting"
        return "gated" if self.words.gates else "pending"

    @property
    def needs_cluster(self) -> bool:
        """Whether every node has a part in the answer."""
        return self.state in ("gated", "pending")


class _NodeSpec(msgspec.Struct, frozen=True):
    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeWords(msgspec.Struct, frozen=True):
    """The parts of a v1.Node by which it keeps pods away."""

    spec: _NodeSpec = _NodeSpec()


CORDON = Taint("node.kubernetes.io/unschedulable", effect="NoSchedule")


def obstacles(pod: PodWords, node: NodeWords, labels: Mapping[str, str]) -> tuple[str, ...]:
    """What keeps the pod from a node whatever its cards: cordon, taints, nodeSelector. Affinity is not looked at."""
    tolerations = pod.spec.tolerations or ()
    found = []
    if node.spec.unschedulable and not any(each.accepts(CORDON) for each in tolerations):
        found.append("the node is cordoned")
    for taint in node.spec.taints or ():
        is_told = taint.key == CORDON.key or taint.effect not in ("NoSchedule", "NoExecute")
        if not is_told and not any(each.accepts(taint) for each in tolerations):
            found.append(f"taint {taint} is not tolerated")
    for key, value in sorted((pod.spec.node_selector or {}).items()):
        if labels.get(key) != value:
            found.append(f"nodeSelector wants {key}={value}")
    return tuple(found)
