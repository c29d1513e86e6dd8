"""How busy each container keeps a card: the driver's samples by process, summed by container; like `usage_meter.py`, for compute."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vrampack.agent.limits.cgroups import CgroupOwner, FindOwner
from vrampack.agent.nvml.driver import GpuUtilization

log = logging.getLogger(__name__)

FULL_PERCENT = 100


class UtilizationSource(Protocol):
    """The only driver call needed here."""

    async def read_utilization(self) -> Sequence[GpuUtilization]: ...


@dataclass(frozen=True, slots=True)
class MeasuredUtilization:
    """Percent of a card's multiprocessors, 100 at most. A card whose driver does not report it is in neither mapping."""

    by_card: Mapping[str, int] = field(default_factory=dict)
    """By uuid, of all processes, including those outside of pods."""
    by_container: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """By pod uid, container id and card, of those that were busy."""


class UtilizationMeter:
    """Measures the time since its last measurement."""

    def __init__(self, driver: UtilizationSource, find_owner: FindOwner) -> None:
        self._driver = driver
        self._find_owner = find_owner

    async def measure_utilization(self) -> MeasuredUtilization:
        """Raises `DriverError`."""
        cards = await self._driver.read_utilization()
        return await asyncio.to_thread(self._sum_by_container, cards)

    def _sum_by_container(self, cards: Sequence[GpuUtilization]) -> MeasuredUtilization:
        by_container: Counter[tuple[str, str, str]] = Counter()
        for card in cards:
            for pid, percent in card.sm_percent.items():
                owner = self._find_owner_of(pid)
                if owner is not None:
                    by_container[owner.pod_uid, owner.container_id, card.uuid] += percent
        by_card = {card.uuid: min(FULL_PERCENT, sum(card.sm_percent.values())) for card in cards}
        return MeasuredUtilization(by_card, {key: min(FULL_PERCENT, sum_) for key, sum_ in by_container.items()})

    def _find_owner_of(self, pid: int) -> CgroupOwner | None:
        """A process that ends meanwhile counts as gone."""
        try:
            return self._find_owner(pid)
        except OSError as error:
            log.debug("process not resolved pid=%d error=%s", pid, error)
            return None
