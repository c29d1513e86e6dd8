"""The explained pod: as the extender reads it, and what only the scheduler reads and writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from vrampack.cards import well_known
from vrampack.cards.pod import Pod
from vrampack.cli.explain.schema import PodState
from vrampack.kube.examined_objects import ExaminedPod, ExaminedPodSpec
from vrampack.kube.pod_conditions import PodCondition


class SchedulingGate(msgspec.Struct, frozen=True):
    name: str = ""


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    scheduler_name: str | None = None
    scheduling_gates: list[SchedulingGate] | None = None


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str | None = None
    conditions: list[PodCondition] | None = None
    nominated_node_name: str | None = None


class PodSchedulingFields(msgspec.Struct, frozen=True):
    """Which scheduler has the pod, and what it wrote."""

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
        scheduled = self.find_condition("PodScheduled")
        return None if scheduled is None or scheduled.status != "False" else scheduled

    def find_condition(self, kind: str) -> PodCondition | None:
        return next((each for each in self.status.conditions or () if each.type == kind), None)


@dataclass(frozen=True, slots=True)
class ExplainedPod:
    """The pod that is explained: as the extender reads it, and what only the scheduler reads."""

    pod: Pod
    scheduling_fields: PodSchedulingFields
    spec: ExaminedPodSpec
    limits_mib: Mapping[str, str]
    """What each container may use, as its annotation says."""
    knows_rules: bool = True
    """False: rules name labels of its namespace, which the reader may not read, so no card can be judged for it."""

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


def build_explained_pod(pod: Pod, scheduling_fields: PodSchedulingFields, obj: ExaminedPod) -> ExplainedPod:
    """The pod without what is not read of it: a cluster may have many, and each 256 KiB of annotations."""
    prefix = well_known.LIMIT_MIB_PREFIX
    annotations = obj.metadata.annotations or {}
    limits = {key.removeprefix(prefix): text for key, text in annotations.items() if key.startswith(prefix)}
    return ExplainedPod(pod, scheduling_fields, obj.spec, limits)
