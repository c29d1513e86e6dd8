"""The driver through NVML: a `GpuDriver` with a time-out on every call, which never blocks the event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

from vrampack.agent.nvml.driver import CgroupLimit, GpuCondition, GpuInventory, GpuUsage, GpuUtilization, Xid
from vrampack.agent.nvml.session import NvmlSession
from vrampack.agent.nvml.timed_calls import TimedCalls

PCI_DEVICES = Path("/sys/bus/pci/devices")
KERNEL_MODULE = Path("/sys/module/nvidia")
"""The node's, in every container; NVIDIA's runtime replaces /proc/driver/nvidia by a copy there."""


class NvmlDriver:
    """NVML of this machine, opened at the first call, which raises `NoDriverError` on a machine without it.

    In a container that lacks it, on a machine that has it, calls raise `HiddenDriverError`.
    """

    def __init__(
        self, *, call_timeout_seconds: float, pci_devices: Path = PCI_DEVICES, kernel_module: Path = KERNEL_MODULE
    ) -> None:
        self._session = NvmlSession(pci_devices=pci_devices, kernel_module=kernel_module)
        self._calls = TimedCalls(timeout_seconds=call_timeout_seconds)

    @property
    def hung_call_count(self) -> int:
        """Calls that the driver never answered."""
        return self._calls.hung_count

    async def list_gpus(self) -> GpuInventory:
        return await self._calls.run_call("the list of cards", self._session.list_gpus)

    async def check_gpu(self, uuid: str) -> None:
        await self._calls.run_call(f"card {uuid}", lambda: self._session.check_gpu(uuid))

    async def read_condition(self, uuid: str) -> GpuCondition:
        return await self._calls.run_call(f"condition of {uuid}", lambda: self._session.read_condition(uuid))

    async def wait_for_xids(self, timeout_seconds: float) -> tuple[Xid, ...]:
        told = await self._calls.run_call(
            "events", lambda: self._session.wait_for_xids(timeout_seconds), extra_seconds=timeout_seconds
        )
        if told is None:  # there is no card to wait for, so wait here
            await asyncio.sleep(timeout_seconds)
        return told or ()

    async def read_usage(self) -> tuple[GpuUsage, ...]:
        return await self._calls.run_call("memory in use", self._session.read_usage)

    async def read_utilization(self) -> tuple[GpuUtilization, ...]:
        return await self._calls.run_call("utilization", self._session.read_utilization)

    async def set_limit(self, cgroup_path: str, uuid: str, mib: int | None) -> None:
        await self._calls.run_call("a limit", lambda: self._session.set_limit(cgroup_path, uuid, mib))

    async def read_limit(self, cgroup_path: str, uuid: str) -> CgroupLimit:
        return await self._calls.run_call("a limit", lambda: self._session.read_limit(cgroup_path, uuid))
