"""A pod of this node, as far as the agent needs to know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vrampack.cards.pod import Pod
from vrampack.kube.objects import ContainerStatus, LocalPodObject, to_pod


@dataclass(frozen=True, slots=True)
class LocalPod:
    """One pod that was bound to this node."""

    pod: Pod
    annotations: Mapping[str, str]
    container_ids: Mapping[str, str]
    """By name, of containers that were made at least once, init ones too: `containerd://..`, that of the last one."""
    is_static: bool
    """Of a file of the node; the API server has its mirror."""
    is_controlled: bool
    """Whether somebody makes it anew when it is gone."""

    @property
    def started_containers(self) -> frozenset[str]:
        """Containers that were made at least once."""
        return frozenset(self.container_ids)

    @property
    def is_active(self) -> bool:
        """Whether it still holds what it was given."""
        return not self.pod.is_finished


def to_local_pod(obj: LocalPodObject, resource: str) -> LocalPod:
    annotations = obj.metadata.annotations or {}
    states: list[ContainerStatus] = [
        *(obj.status.init_container_statuses or ()),
        *(obj.status.container_statuses or ()),
    ]
    return LocalPod(
        pod=to_pod(obj, resource=resource),
        annotations=annotations,
        container_ids={state.name: state.container_id for state in states if state.container_id},
        is_static=obj.is_static,
        is_controlled=obj.is_controlled,
    )
