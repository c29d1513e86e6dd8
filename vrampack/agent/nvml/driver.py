"""What the agent asks a driver, and the values that it gets back. Nothing here knows NVML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from vrampack.agent.nvml.errors import DriverError


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card: a GPU, or a MIG instance. A GPU with MIG instances is no card itself."""

    uuid: str
    index: int
    """NVML's index; for an instance (parent's + 1) * 100 + its slot on the parent, so that all on a node are distinct."""
    minor: int
    """N of /dev/nvidiaN; for an instance, its parent's."""
    pci_bus_id: str
    model: str
    memory_mib: int
    numa: int | None = None
    mig_parent: str | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass(frozen=True, slots=True)
class UnreadableGpu:
    """A card that the driver counts but does not describe: usually lost."""

    index: int
    error: DriverError
    uuid: str | None = None
    """Its uuid when it could last be read."""


@dataclass(frozen=True, slots=True)
class GpuInventory:
    """All cards of the node at one moment, by index."""

    gpus: tuple[Gpu, ...]
    driver_version: str
    mig_gpus: frozenset[str] = frozenset()
    """Uuids of GPUs in MIG mode, which are no cards, whether they have instances or not."""
    unreadable: tuple[UnreadableGpu, ...] = ()
    has_confidential_computing: bool = False
    """Whether the driver says that it is on; False also when it does not say."""


@dataclass(frozen=True, slots=True)
class Xid:
    """One error that the driver reported for a GPU."""

    number: int
    uuid: str | None
    """The uuid of the GPU, never of an instance; None when the driver could not say, so it may be any."""
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """One process on a card; `pid` is the host's. `used_bytes` is None if this driver does not count per process."""

    pid: int
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """What is in use on one card."""

    uuid: str
    used_bytes: int
    total_bytes: int
    processes: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuUtilization:
    """How busy processes keep one GPU: percent of its multiprocessors, by the host's pid. A process without an entry is idle."""

    uuid: str
    sm_percent: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class CgroupLimit:
    """What a cgroup may use of a card, and uses."""

    hard_bytes: int | None
    """None: no limit is set."""
    used_bytes: int


@dataclass(frozen=True, slots=True)
class GpuCondition:
    """What NVML says about a GPU's health. None: this driver or GPU does not say, which is neither good nor bad."""

    recovery_action: int | None = None
    """NVML_GPU_RECOVERY_ACTION_*; 0 is none."""
    is_remap_pending: bool | None = None
    is_remap_failed: bool | None = None
    is_retirement_pending: bool | None = None
    uncorrected_errors: int | None = None
    """ECC errors since the driver was loaded."""


class GpuDriver(Protocol):
    """Every method raises only `DriverError` or a subclass, and returns within the time-out."""

    async def list_gpus(self) -> GpuInventory:
        """The cards that are there now."""
        ...

    async def check_gpu(self, uuid: str) -> None:
        """Raises when the card does not answer as a healthy one does."""
        ...

    async def read_condition(self, uuid: str) -> GpuCondition:
        """The health of a GPU, not of an instance."""
        ...

    async def wait_for_xids(self, timeout_seconds: float) -> tuple[Xid, ...]:
        """Errors of the cards that `list_gpus` found, each once; waits up to the time-out for the first."""
        ...

    async def read_usage(self) -> tuple[GpuUsage, ...]:
        """Memory in use on each card of the last `list_gpus`; a card that does not answer is left out."""
        ...

    async def read_utilization(self) -> tuple[GpuUtilization, ...]:
        """Use since the last call, for each card of the last `list_gpus`; a card whose driver does not say is left out."""
        ...

    async def set_limit(self, cgroup_path: str, uuid: str, mib: int | None) -> None:
        """Limit the processes of a cgroup to `mib` of the card; None lifts the limit. Driver 615 and newer."""
        ...

    async def read_limit(self, cgroup_path: str, uuid: str) -> CgroupLimit:
        """The limit in force for a cgroup."""
        ...
