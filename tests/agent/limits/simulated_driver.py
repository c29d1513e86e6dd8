"""A simulated driver: it holds limits by cgroup and card, counts processes, and fails when told to."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from vrampack.agent.limits.cgroups import CgroupOwner
from vrampack.agent.limits.usage_meter import UsageMeter
from vrampack.agent.nvml.driver import GpuProcess, GpuUsage

MIB = 1 << 20


@dataclass
class SimulatedLimitDriver:
    limits: dict[tuple[str, str], int] = field(default_factory=dict)
    cards: tuple[GpuUsage, ...] = ()
    fails: Exception | None = None
    hangs: bool = False

    async def set_limit(self, cgroup_path: str, uuid: str, mib: int, /) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails is not None:
            raise self.fails
        self.limits[cgroup_path, uuid] = mib

    async def read_usage(self) -> tuple[GpuUsage, ...]:
        return self.cards

    def set_usage(self, uuid: str, **mib_by_pid: int | None) -> None:
        """`set_usage("GPU-a", p7=3193)`: process 7 has 3193 MiB of that card."""
        processes = (GpuProcess(int(pid[1:]), None if mib is None else mib * MIB) for pid, mib in mib_by_pid.items())
        self.cards = (*self.cards, GpuUsage(uuid, 0, 0, tuple(processes)))


def build_measure(driver: SimulatedLimitDriver, owners: dict[int, CgroupOwner] | None = None) -> UsageMeter:
    return UsageMeter(driver, (owners or {}).get)
