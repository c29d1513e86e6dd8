"""A pod of this node, as far as the agent needs to know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from vrampack.cards import well_known
from vrampack.cards.pod import Pod
from vrampack.kube.objects import ContainerStatus, LocalPodObject, to_pod


@dataclass(frozen=True, slots=True)
class LocalPod:
    """One pod that was bound to this node."""

    pod: Pod
    annotations: Mapping[str, str]
    """Those of a record: a user may write others of 256 KiB to each pod, and finished pods are kept too."""
    container_ids: Mapping[str, str]
    """The last container id by name, `containerd://..`, of every container that was created, init containers included."""
    is_static: bool
    """Whether it comes from a file on the node; the API server has its mirror."""
    is_controlled: bool
    """Whether a controller creates a replacement when it is gone."""
    runtime_class: str = ""
    """Empty: the node's default handler."""
    started_at: Mapping[str, float] = field(default_factory=dict)
    """When each container last started, by kubelet's clock; without those whose status does not say."""
    running_containers: frozenset[str] = frozenset()

    @property
    def started_containers(self) -> frozenset[str]:
        """The containers that were created at least once."""
        return frozenset(self.container_ids)

    @property
    def is_active(self) -> bool:
        """Whether it still holds its cards."""
        return not self.pod.is_finished


def to_local_pod(obj: LocalPodObject, resource: str) -> LocalPod:
    annotations = obj.metadata.annotations or {}
    states = obj.status.list_containers()
    return LocalPod(
        pod=to_pod(obj, resource=resource),
        annotations={key: text for key, text in annotations.items() if _is_of_record(key)},
        container_ids={state.name: state.container_id for state in states if state.container_id},
        is_static=obj.is_static,
        is_controlled=obj.is_controlled,
        runtime_class=obj.spec.runtime_class_name or "",
        started_at={state.name: at for state in states if (at := _read_start(state)) is not None},
        running_containers=frozenset(each.name for each in states if each.is_running),
    )


def _is_of_record(key: str) -> bool:
    return key in well_known.RECORD_ANNOTATIONS or key.startswith(
        (well_known.VISIBLE_DEVICES_PREFIX, well_known.LIMIT_MIB_PREFIX)
    )


def _read_start(status: ContainerStatus) -> float | None:
    run = (status.state.running or status.state.terminated) if status.state is not None else None
    try:
        return datetime.fromisoformat((run and run.started_at) or "").timestamp()
    except ValueError:
        return None
