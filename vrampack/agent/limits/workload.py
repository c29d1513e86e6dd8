"""What is limited on this node: pods in Kubernetes, plain containers on a host without it.

Back ends use this interface and know neither. `pod_uid` is the uid of a pod, or the key of a host's container.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from vrampack.agent.limits.cgroups import CgroupOwner


@dataclass(frozen=True, slots=True)
class DesiredLimit:
    """A limit that ought to be in force, for a pod or for one container."""

    pod_uid: str
    limits_mib: Mapping[str, int]
    """MiB by uuid of the card."""
    find_cgroup: Callable[[], Path | None]
    """The target's cgroup, once there is one."""
    container: str = ""
    """Empty: the whole pod."""
    reported_container: str = ""
    """The container for which figures are shown; for a pod's limit, its only one with a card."""
    weight: int = 1
    is_added_by_hook: bool = False
    """Whether only the hook may add it, before the first process: added later, it would give its processes a second budget."""

    @property
    def budget_name(self) -> str:
        return make_budget_name(self.pod_uid, self.container)


def make_budget_name(pod_uid: str, container: str) -> str:
    """The name of a budget in the kernel module: it outlives the agent."""
    return f"{pod_uid}.{container}" if container else pod_uid


@dataclass(frozen=True, slots=True)
class ResolvedContainer:
    """A container whose limits are known."""

    container: str
    limits_mib: Mapping[str, int]


class Unresolved(Enum):
    """Why a container's limits cannot be given."""

    UNLIMITED = "it has no limit here: a previous plugin set it up, or another back end enforces limits by now"
    UNKNOWN_OWNER = "it is in no known pod: it gets nothing"
    NAME_PENDING = "the pod's status does not say yet which of its containers this is"
    MEMORY_RETURNING = "what it asks for is held by a process that is ending"


class Workload(Protocol):
    """`admission/pod_workload.py` for pods, `host/containers.py` for the containers of a host."""

    def list_desired(self) -> Iterable[DesiredLimit]:
        """All limits that ought to be in force now."""

    def get_limits_mib(self, pod_uid: str, container: str, /) -> Mapping[str, int] | None:
        """MiB by card of a container, or of a whole pod without its name; empty for no limit, None for an unknown one."""

    def get_container_name(self, pod_uid: str, container_id: str, /) -> str | None:
        """The name of the container with this id; None while it is unknown."""

    def resolve_container(self, owner: CgroupOwner | None, /) -> ResolvedContainer | Unresolved:
        """Which container this is, and what it may use now."""

    def resolve_leftover(self, owner: CgroupOwner | None, /) -> ResolvedContainer | Unresolved:
        """The same for a container that still asks a back end which no longer enforces the limits of this node."""

    def find_process_owner(self, pid: int, /) -> CgroupOwner | None:
        """The container that a process belongs to; None for a process outside containers, or one that has ended."""

    def is_gone(self, pod_uid: str, /) -> bool:
        """Whether it can have no process left."""
