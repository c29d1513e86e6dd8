"""PodGroups as far as we read them: how many pods of a group must start together, and on nodes with which label in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from vrampack.cards.pod_group import GroupKind
from vrampack.kube.api_request import PodGroupResource
from vrampack.kube.objects import ObjectMeta

RESOURCES: Mapping[GroupKind, Sequence[PodGroupResource]] = {
    "podgroups.scheduling.k8s.io": (
        "podgroups.v1beta1.scheduling.k8s.io",
        "podgroups.v1alpha3.scheduling.k8s.io",
        "podgroups.v1alpha2.scheduling.k8s.io",
    ),
    "podgroups.scheduling.x-k8s.io": ("podgroups.v1alpha1.scheduling.x-k8s.io",),
}
"""The versions of each kind, the best one first. What we read of them is the same in all: 1.36 has the last of the first kind, 1.37 the others."""


class GangPolicy(msgspec.Struct, frozen=True, rename="camel"):
    min_count: int | None = None


class GroupPolicy(msgspec.Struct, frozen=True):
    gang: GangPolicy | None = None
    """None for a group whose pods may start one by one."""


class TopologyConstraint(msgspec.Struct, frozen=True):
    key: str = ""


class SchedulingConstraints(msgspec.Struct, frozen=True):
    topology: tuple[TopologyConstraint, ...] | None = None
    """At most one."""


class PodGroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Of either kind."""

    scheduling_policy: GroupPolicy | None = None
    """Of Kubernetes' own groups."""
    scheduling_constraints: SchedulingConstraints | None = None
    """The same."""
    min_member: int | None = None
    """Of Coscheduling's."""


class PodGroupObject(msgspec.Struct, frozen=True):
    """A PodGroup of any version in `RESOURCES`."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()

    @property
    def minimum(self) -> int | None:
        """How many of its pods start together at least; None if they need not."""
        policy = self.spec.scheduling_policy
        return self.spec.min_member if policy is None or policy.gang is None else policy.gang.min_count

    @property
    def topology_key(self) -> str:
        """The label whose value must be the same on all nodes of its pods; empty if they may go anywhere."""
        constraints = self.spec.scheduling_constraints
        return constraints.topology[0].key if constraints is not None and constraints.topology else ""
