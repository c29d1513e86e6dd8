"""The contract of every back end: put limits in force, take them back, say what is used.

`apply` gets a pod or one of its containers and whole MiB per card. It answers *in force* or *deferred*: deferred means
that nothing was refused and something later does it, or nobody does, and `by` says which. A limit that should be in
force and cannot be is a `LimitError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class Scope(StrEnum):
    POD = "pod"
    CONTAINER = "container"


class AppliedState(StrEnum):
    IN_FORCE = "in force"
    DEFERRED = "deferred"


@dataclass(frozen=True, slots=True)
class LimitTarget:
    """Whose limit it is. The uid says who; the names are for people."""

    pod_uid: str
    namespace: str
    name: str
    container: str = ""
    """Empty at pod scope."""
    cgroup: Path | None = None
    """The pod's or the container's own cgroup, as this process sees it, where it is known."""
    pid: int = 0
    """A container's first process, as the hook says it."""
    weight: int = 1
    """Share of compute that it asks for: kept by who can, and without effect."""

    def __str__(self) -> str:
        return "/".join(part for part in (self.namespace, self.name, self.container) if part)


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a limit, and who holds it."""

    state: AppliedState
    held_by: str


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """What the processes of one container use on one card, measured."""

    pod_uid: str
    container_id: str
    """The runtime's id; empty for processes in the pod's cgroup that are in no container."""
    uuid: str
    used_bytes: int


@dataclass(frozen=True, slots=True)
class Traits:
    """What people must know about a back end; `docs/limits.md` prints the same."""

    granularity: Scope | None
    """The smallest thing that is held on its own; None where nothing is held."""
    in_force: str
    survives: str


class BackEnd(Protocol):
    """`word` is the node label's value and the metric's."""

    @property
    def mode(self) -> str: ...

    @property
    def traits(self) -> Traits: ...

    async def apply(self, scope: Scope, target: LimitTarget, limits: Mapping[str, int]) -> Applied:
        """Hold `identity` to these MiB per card uuid."""

    async def release(self, target: LimitTarget) -> None:
        """Forget a pod or a container that is gone."""

    async def measure_usage(self) -> tuple[ContainerUsage, ...]:
        """What is used now, by container and card, in stable order."""
