"""PodGroups as far as we read them: how many pods of a group must start together."""

from __future__ import annotations

import msgspec

from vrampack.kube.objects import ObjectMeta


class GangPolicy(msgspec.Struct, frozen=True, rename="camel"):
    min_count: int | None = None


class GroupPolicy(msgspec.Struct, frozen=True):
    gang: GangPolicy | None = None
    """None for a group whose pods may start one by one."""


class PodGroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Of either kind."""

    scheduling_policy: GroupPolicy | None = None
    """Of Kubernetes' own groups."""
    min_member: int | None = None
    """Of Coscheduling's."""


class PodGroupObject(msgspec.Struct, frozen=True):
    """A PodGroup of scheduling.k8s.io/v1alpha2 or scheduling.x-k8s.io/v1alpha1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()

    @property
    def minimum(self) -> int | None:
        """How many of its pods start together at least; None if they need not."""
        policy = self.spec.scheduling_policy
        return self.spec.min_member if policy is None or policy.gang is None else policy.gang.min_count
