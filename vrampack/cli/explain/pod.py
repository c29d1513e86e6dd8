"""The fields of the explained pod and of nodes that the scheduler reads.

The extender does not read them; they show what keeps a pod away from a node on which it has room.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from vrampack.cards import well_known
from vrampack.cards.pod import Pod
from vrampack.cli.explain.schema import PodState
from vrampack.kube.objects import PodObject
from vrampack.kube.pod_conditions import PodCondition
from vrampack.kube.taints import UNSCHEDULABLE_TAINT, Taint, Toleration


class SchedulingGate(msgspec.Struct, frozen=True):
    name: str = ""


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    scheduler_name: str | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str | None = None
    conditions: list[PodCondition] | None = None
    nominated_node_name: str | None = None


class PodSchedulingFields(msgspec.Struct, frozen=True):
    """The parts of a v1.Pod that the scheduler reads and writes."""

    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def scheduler_name(self) -> str:
        return self.spec.scheduler_name or "default-scheduler"

    @property
    def gate_names(self) -> tuple[str, ...]:
        return tuple(gate.name for gate in self.spec.scheduling_gates or ())

    @property
    def unschedulable_condition(self) -> PodCondition | None:
        """The condition from the scheduler's last attempt; None before the first, and once the pod is bound."""
        conditions = self.status.conditions or ()
        return next((each for each in conditions if each.type == "PodScheduled" and each.status == "False"), None)


@dataclass(frozen=True, slots=True)
class ExplainedPod:
    """The pod that is explained: as the extender reads it, and what only the scheduler reads."""

    pod: Pod
    scheduling_fields: PodSchedulingFields
    limits_mib: Mapping[str, str]
    """What each container may use, as its annotation says."""

    @property
    def state(self) -> PodState:
        if self.pod.is_finished:
            return "finished"
        if self.pod.node_name:
            return "bound" if self.pod.can_hold_memory else "asks-nothing"
        if self.pod.request is None:
            return "asks-nothing"
        if self.pod.is_terminating:
            return "deleting"
        return "gated" if self.scheduling_fields.gate_names else "pending"

    @property
    def needs_cluster(self) -> bool:
        """Whether the explanation needs every node."""
        return self.state in ("gated", "pending")


def build_explained_pod(pod: Pod, scheduling_fields: PodSchedulingFields, obj: PodObject) -> ExplainedPod:
    """The pod without what is not read of it: a cluster may have many, and each 256 KiB of annotations."""
    prefix = well_known.LIMIT_MIB_PREFIX
    annotations = obj.metadata.annotations or {}
    limits = {key.removeprefix(prefix): text for key, text in annotations.items() if key.startswith(prefix)}
    return ExplainedPod(pod, scheduling_fields, limits)


class _NodeSpec(msgspec.Struct, frozen=True):
    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeSchedulingFields(msgspec.Struct, frozen=True):
    """The parts of a v1.Node by which it keeps pods away."""

    spec: _NodeSpec = _NodeSpec()


def find_obstacles(
    pod_fields: PodSchedulingFields, node_fields: NodeSchedulingFields, labels: Mapping[str, str]
) -> tuple[str, ...]:
    """What keeps the pod off a node whatever its cards: cordon, taints, nodeSelector. Does not evaluate affinity."""
    tolerations = pod_fields.spec.tolerations or ()
    found = []
    if node_fields.spec.unschedulable and not any(each.tolerates(UNSCHEDULABLE_TAINT) for each in tolerations):
        found.append("the node is cordoned")
    for taint in node_fields.spec.taints or ():
        is_relevant = taint.keeps_away and taint.key != UNSCHEDULABLE_TAINT.key
        if is_relevant and not any(each.tolerates(taint) for each in tolerations):
            found.append(f"taint {taint} is not tolerated")
    for key, value in sorted((pod_fields.spec.node_selector or {}).items()):
        if labels.get(key) != value:
            found.append(f"nodeSelector wants {key}={value}")
    return tuple(found)
