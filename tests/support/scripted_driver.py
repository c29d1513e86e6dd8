"""A driver that reports at once what a test wants, for tests of discovery. `test_library.py` shows that NVML reports such things."""

from __future__ import annotations

import asyncio

from vrampack.agent.nvml.driver import (
    CgroupLimit,
    Gpu,
    GpuCondition,
    GpuInventory,
    GpuUsage,
    GpuUtilization,
    UnreadableGpu,
    Xid,
)
from vrampack.agent.nvml.errors import DriverError

LOST = 15


def scripted_gpu(place: int = 0, *, memory_mib: int = 16130, model: str = "Tesla V100-SXM2-16GB") -> Gpu:
    return Gpu(f"GPU-{place}", place, place, f"00000000:{place + 1:02X}:00.0", model, memory_mib)


def scripted_mig_instance(name: str, *, slot: int, parent: int = 0, memory_mib: int = 4864) -> Gpu:
    return Gpu(
        uuid=f"MIG-{name}",
        index=(parent + 1) * 100 + slot,
        minor=parent,
        pci_bus_id="",
        model="NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        memory_mib=memory_mib,
        mig_parent=f"GPU-{parent}",
        gpu_instance=slot + 1,
        compute_instance=0,
    )


class ScriptedDriver:
    """It reports what is in its attributes at that moment."""

    def __init__(self, *cards: Gpu) -> None:
        self.present = cards
        self.version = "615.71.09"
        self.cut: frozenset[str] = frozenset()
        self.unreadable: tuple[UnreadableGpu, ...] = ()
        self.has_confidential_computing = False
        self.error: DriverError | None = None
        """Of the list of cards."""
        self.limit_error: DriverError | None = None
        self.failing: dict[str, DriverError] = {}
        """Checks, by uuid."""
        self.conditions: dict[str, GpuCondition] = {}
        """What NVML reports about GPUs, by uuid; nothing about the others."""
        self.usage: tuple[GpuUsage, ...] = ()
        self.looks = 0
        """How many times the list of cards was asked for."""
        self.utilization: tuple[GpuUtilization, ...] | DriverError = ()
        self.reports: asyncio.Queue[Xid | DriverError] = asyncio.Queue()

    async def list_gpus(self) -> GpuInventory:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return GpuInventory(
            self.present,
            self.version,
            self.cut,
            self.unreadable,
            has_confidential_computing=self.has_confidential_computing,
        )

    async def check_gpu(self, uuid: str) -> None:
        if uuid in self.failing:
            raise self.failing[uuid]

    async def read_condition(self, uuid: str) -> GpuCondition:
        return self.conditions.get(uuid, GpuCondition())

    async def wait_for_xids(self, timeout_seconds: float) -> tuple[Xid, ...]:  # noqa: ARG002 - it answers at once
        told = await self.reports.get()
        if isinstance(told, DriverError):
            raise told
        return (told,)

    async def read_usage(self) -> tuple[GpuUsage, ...]:
        return self.usage

    async def read_utilization(self) -> tuple[GpuUtilization, ...]:
        if isinstance(self.utilization, DriverError):
            raise self.utilization
        return self.utilization

    async def set_limit(self, cgroup_path: str, uuid: str, mib: int | None) -> None:  # noqa: ARG002 - the real one's shape
        """Accept every limit, unless `limit_error` is set; none is read back."""
        if self.limit_error is not None:
            raise self.limit_error

    async def read_limit(self, cgroup_path: str, uuid: str) -> CgroupLimit:
        raise NotImplementedError
