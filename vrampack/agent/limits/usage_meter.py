"""Measures who uses how much of a card: the driver lists processes, and their cgroups name the containers.

It needs the host's process ids (`hostPID`): the driver names processes by the ids of the caller's own PID namespace.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from vrampack.agent.limits.cgroups import FindOwner
from vrampack.agent.limits.contract import ContainerUsage
from vrampack.agent.nvml.driver import GpuUsage


class UsageReader(Protocol):
    """The only driver call needed here."""

    async def read_usage(self) -> Sequence[GpuUsage]: ...


class UsageMeter:
    """Sums the processes on all cards by pod, container and card, without processes outside of pods."""

    def __init__(self, driver: UsageReader, find_owner: FindOwner) -> None:
        self._driver = driver
        self._find_owner = find_owner

    async def measure_usage(self) -> tuple[ContainerUsage, ...]:
        cards = await self._driver.read_usage()
        return await asyncio.to_thread(self._sum_by_container, cards)

    def _sum_by_container(self, cards: Sequence[GpuUsage]) -> tuple[ContainerUsage, ...]:
        used: Counter[tuple[str, str, str]] = Counter()
        for card in cards:
            for process in card.processes:
                owner = self._find_owner(process.pid)
                if owner is not None and process.used_bytes is not None:
                    used[owner.pod_uid, owner.container_id, card.uuid] += process.used_bytes
        return tuple(ContainerUsage(*key, used_bytes) for key, used_bytes in sorted(used.items()))
