"""The document at `/limits`, which the agent writes and `vrampack limits status` reads: who holds how much of each card."""

from __future__ import annotations

from typing import Literal

import msgspec


class LimitedProcess(msgspec.Struct, frozen=True, rename="camel"):
    """One process; the pid is the node's."""

    pid: int
    held_bytes: int
    refused: int


class LimitedContainer(msgspec.Struct, frozen=True, rename="camel"):
    """One container on one card. Names are empty if the pod, or its status, no longer has them."""

    namespace: str
    pod: str
    uid: str
    container: str
    uuid: str
    gpu: int | None
    limit_bytes: int | None
    used_bytes: int
    peak_bytes: int
    refused: int
    processes: tuple[LimitedProcess, ...]


class ModuleStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The kernel module."""

    version: str
    is_attached: bool = msgspec.field(name="attached")
    driver_version: str
    """The version of the driver that it is attached to."""
    layout: str
    uvm: str
    files: int
    """Open files of processes that it limits: while there are any, the driver cannot be unloaded."""


class UnguardedContainerStatus(msgspec.Struct, frozen=True):
    """One container that runs with a card and without its limit."""

    namespace: str
    pod: str
    uid: str
    container: str


class LimitsStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One node."""

    api_version: Literal["vrampack.dev/v1"] = "vrampack.dev/v1"
    kind: Literal["ShimStatus"] = "ShimStatus"
    node: str = ""
    enforcement: str = ""
    """What enforces limits here; only `kmod` and `preload` fill the other fields."""
    driver_version: str = ""
    connected: int = 0
    """Processes connected to the agent, including those that hold nothing; with `kmod` only those that hold something."""
    containers: tuple[LimitedContainer, ...] = ()
    module: ModuleStatus | None = None
    """Set if limits depend on the module and it is loaded."""
    unguarded: tuple[UnguardedContainerStatus, ...] = ()
    """Containers that no hook asked about, if only the hook puts limits in force."""
