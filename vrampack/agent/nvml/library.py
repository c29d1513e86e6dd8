"""The driver, asked through NVML: `Driver` with a time-out on every call, and never on the event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

from vrampack.agent.nvml.calls import Calls
from vrampack.agent.nvml.driver import Inventory, Limit, Usage, Xid
from vrampack.agent.nvml.reading import Reading

PCI_DEVICES = Path("/sys/bus/pci/devices")


class Library:
    """NVML of this machine. Opened at the first call; a machine without it raises `NoDriverError` there."""

    def __init__(self, *, call_timeout_seconds: float, pci_devices: Path = PCI_DEVICES) -> None:
        self._reading = Reading(pci_devices=pci_devices)
        self._calls = Calls(timeout_seconds=call_timeout_seconds)

    @property
    def hung_calls(self) -> int:
        """Calls that the driver never answered."""
        return self._calls.hung

    async def cards(self) -> Inventory:
        return await self._calls.run("the list of cards", self._reading.inventory)

    async def check(self, uuid: str) -> None:
        await self._calls.run(f"card {uuid}", lambda: self._reading.check(uuid))

    async def events(self, timeout_seconds: float) -> tuple[Xid, ...]:
        told = await self._calls.run(
            "events", lambda: self._reading.events(timeout_seconds), extra_seconds=timeout_seconds
        )
        if told is None:  # nothing to wait for: the wait is ours
            await asyncio.sleep(timeout_seconds)
        return told or ()

    async def usage(self) -> tuple[Usage, ...]:
        return await self._calls.run("memory in use", self._reading.usage)

    async def set_limit(self, cgroup_path: str, uuid: str, mib: int | None) -> None:
        await self._calls.run("a limit", lambda: self._reading.set_limit(cgroup_path, uuid, mib))

    async def limit(self, cgroup_path: str, uuid: str) -> Limit:
        return await self._calls.run("a limit", lambda: self._reading.limit(cgroup_path, uuid))
