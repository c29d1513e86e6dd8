"""The contract of every back end: put limits in force, release them, and report what is used.

`apply` gets a pod or one of its containers, and whole MiB per card. The answer is *in force* or *deferred*: deferred means
that nothing was refused, and that something else puts the limit in force later, or nothing does; `held_by` says which. A
limit that should be in force and cannot be is a `LimitError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from vrampack.agent.limits.accounting import UsageAccounting


class Scope(StrEnum):
    POD = "pod"
    CONTAINER = "container"


class AppliedState(StrEnum):
    IN_FORCE = "in force"
    DEFERRED = "deferred"


@dataclass(frozen=True, slots=True)
class LimitTarget:
    """Whose limit it is. The uid identifies the target; the names are for people."""

    pod_uid: str
    namespace: str
    name: str
    container: str = ""
    """Empty at pod scope, and for a host's container, which is known by its uid alone."""
    cgroup: Path | None = None
    """The pod's or the container's own cgroup, as this process sees it, if known."""
    pid: int = 0
    """The container's first process, as the hook reports it."""
    weight: int = 1
    """The share of compute that it asks for. Back ends that can store it do; it has no effect."""

    def __str__(self) -> str:
        return "/".join(part for part in (self.namespace, self.name, self.container) if part)


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of `apply`: the state of the limit, and what holds it."""

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
class OverLimit:
    """A container that uses more of a card than its limit."""

    pod_uid: str
    container: str
    uuid: str
    used_mib: int
    limit_mib: int
    lasted_seconds: float
    should_evict: bool


@dataclass(frozen=True, slots=True)
class ModuleState:
    """The kernel module as a whole, where limits depend on one."""

    version: str
    is_attached: bool
    driver_version: str
    """Empty while the module is detached, and so is `layout`."""
    layout: str
    """`one device` or `two devices`: how the driver created its own."""
    uvm: str
    """`absent`: not loaded yet; `guarded`; `unguarded`: managed memory would escape the limit."""
    files: int
    """Open files of managed processes."""

    @property
    def is_unguarded(self) -> bool:
        return self.uvm == "unguarded"


@dataclass(frozen=True, slots=True)
class Traits:
    """What people must know about a back end; `docs/limits.md` says the same."""

    granularity: Scope | None
    """The smallest thing that has its own limit; None if no limit is enforced."""
    in_force: str
    survives: str


class LimitApplier(Protocol):
    """Takes limits: a back end, or `Enforcement`, which passes them on."""

    async def apply(self, scope: Scope, target: LimitTarget, limits: Mapping[str, int]) -> Applied:
        """Hold `target` to these MiB per card uuid. Raises `LimitError`."""


class BackEnd(LimitApplier):
    """One way to enforce limits: has `traits` and `apply`, and overrides what else it needs. The rest has defaults here."""

    traits: Traits

    @property
    def accounting(self) -> UsageAccounting | None:
        """What is held now, container by container; None if usage is measured and not counted."""
        return None

    @property
    def module_state(self) -> ModuleState | None:
        """The kernel module that limits depend on, as the last `reconcile` saw it."""
        return None

    @property
    def needs_hook(self) -> bool:
        """Whether limits are put in force only when the createRuntime hook asks."""
        return False

    @property
    def needs_toolkit(self) -> bool:
        """Whether limits are put in force only by the hook that NVIDIA's spec of a card names."""
        return False

    @property
    def card_instances(self) -> Mapping[str, int]:
        """How many limits it can hold on a card at a time, by uuid; without the cards on which it can hold any number."""
        return {}

    @property
    def limits_containers_apart(self) -> bool:
        """Whether the createRuntime hook gives each of several containers of a pod an instance of its own."""
        return False

    @property
    def hook_mount(self) -> str:
        """The folder that the hook has to mount into a container; empty for none."""
        return ""

    def list_mounts(self) -> Mapping[str, str]:
        """What kubelet mounts into every container: path on the node by path in the container."""
        return {}

    async def start(self) -> None:
        """Start the back end. Raises `OSError`. May be called again after `stop`."""

    def stop(self) -> None:
        """Release what the next agent of this node needs; also after a `start` that failed."""

    async def reconcile(self) -> str:
        """Make the node match what is desired. Returns why no new limit can be enforced now; empty when all is well."""
        return ""

    async def release(self, target: LimitTarget) -> None:
        """Forget the limit of a pod or a container that is gone."""

    def forget_pod(self, pod_uid: str) -> None:
        """The pod, or the container of a host, is gone: drop what is only kept to show it."""

    async def measure_usage(self) -> tuple[ContainerUsage, ...] | None:
        """What is used now, by container and card, in stable order; None if nothing is measured. Raises `DriverError`."""
        return None

    async def list_over_limit(self) -> tuple[OverLimit, ...]:
        """The containers above their limits, if limits are only watched. Raises `DriverError`."""
        return ()
