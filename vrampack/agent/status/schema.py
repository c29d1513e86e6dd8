"""The document at `/limits`, which the agent writes and `vrampack limits status` reads: who holds what of the cards."""

from __future__ import annotations

from typing import Literal

import msgspec


class LimitedProcess(msgspec.Struct, frozen=True, rename="camel"):
    """One process; the pid is the node's."""

    pid: int
    held_bytes: int
    refused: int


class LimitedContainer(msgspec.Struct, frozen=True, rename="camel"):
    """One container on one card. Names are empty where the pod, or its status, no longer has them."""

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
    """That it stands before."""
    layout: str
    uvm: str
    files: int
    """Open files of processes that it limits: as long as there are any the driver cannot be unloaded."""


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
    """Who holds limits here; without `kmod` and `preload` there is nothing else to say."""
    driver_version: str = ""
    connected: int = 0
    """Processes that have a line to the agent, those that hold nothing too; with `kmod` those that hold something."""
    containers: tuple[LimitedContainer, ...] = ()
    module: ModuleStatus | None = None
    """Where limits hang on it and it is loaded."""
    unguarded: tuple[UnguardedContainerStatus, ...] = ()
    """Containers that no hook asked about, where only the hook puts limits in force."""
