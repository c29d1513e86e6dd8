"""Which fields of a pod decide whether its scheduler may bind it long after it has chosen the node, and in which group it is."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from vrampack.cards.pod_group import GroupKey
from vrampack.kube.decoding import NULL, UNDECODABLE

LATE_VOLUMES = frozenset({"persistentVolumeClaim", "ephemeral"})
"""Volume kinds that may be provisioned once the node is chosen."""
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
"""Of the plugin Coscheduling."""

_LIST = msgspec.json.Decoder(list[msgspec.Raw] | None)
_VOLUMES = msgspec.json.Decoder(list[dict[str, msgspec.Raw]] | None)


class SchedulingGroup(msgspec.Struct, frozen=True, rename="camel"):
    """Of a pod's spec."""

    pod_group_name: str | None = None


_SCHEDULING_GROUP = msgspec.json.Decoder(SchedulingGroup | None)


class LateBindingSpec(msgspec.Struct, frozen=True, rename="camel"):
    """That part of a v1.PodSpec, undecoded."""

    volumes: msgspec.Raw = NULL
    resource_claims: msgspec.Raw = NULL
    scheduling_group: msgspec.Raw = NULL
    """Of Kubernetes' own groups, from 1.36 on."""
    workload_ref: msgspec.Raw = NULL
    """The same in 1.35."""

    def list_volumes(self) -> list[dict[str, msgspec.Raw]]:
        return _VOLUMES.decode(self.volumes) or []

    @property
    def has_resource_claims(self) -> bool:
        return bool(_LIST.decode(self.resource_claims))


def may_bind_late(spec: LateBindingSpec, labels: Mapping[str, str]) -> bool:
    """Whether a scheduler may wait for a volume, a resource claim or the rest of a group first."""
    if spec.scheduling_group != NULL or spec.workload_ref != NULL or GROUP_LABEL in labels:
        return True
    try:
        return spec.has_resource_claims or any(not LATE_VOLUMES.isdisjoint(volume) for volume in spec.list_volumes())
    except UNDECODABLE:
        return False


def read_group(spec: LateBindingSpec, namespace: str, labels: Mapping[str, str]) -> GroupKey | None:
    """The group that the pod names."""
    try:
        own = _SCHEDULING_GROUP.decode(spec.scheduling_group)
    except UNDECODABLE:
        return None
    if own is not None and own.pod_group_name:
        return GroupKey("podgroups.scheduling.k8s.io", namespace, own.pod_group_name)
    name = labels.get(GROUP_LABEL)
    return GroupKey("podgroups.scheduling.x-k8s.io", namespace, name) if name else None
