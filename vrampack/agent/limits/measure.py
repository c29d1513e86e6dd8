"""Who uses how much of a card: the driver's processes, and the cgroups that they are in.

It needs the host's process ids (`hostPID`): the driver names processes by the ids of the caller's own PID namespace.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from vrampack.agent.limits.cgroups import Owner
from vrampack.agent.limits.contract import Usage

OwnerOf: TypeAlias = Callable[[int], Owner | None]


class Process(Protocol):
    """One process on a card; None bytes where the driver does not count it."""

    @property
    def pid(self) -> int: ...

    @property
    def used_bytes(self) -> int | None: ...


class CardUsage(Protocol):
    """One card, and the processes on it."""

    @property
    def uuid(self) -> str: ...

    @property
    def processes(self) -> Sequence[Process]: ...


class UsageReader(Protocol):
    """What is needed of the driver."""

    async def usage(self) -> Sequence[CardUsage]: ...


class Measure:
    """The processes on all cards, summed by pod, container and card; what belongs to no pod is left out."""

    def __init__(self, driver: UsageReader, owner_of: OwnerOf) -> None:
        self._driver = driver
        self._owner_of = owner_of

    async def usage(self) -> tuple[Usage, ...]:
        cards = await self._driver.usage()
        return await asyncio.to_thread(self._sum, cards)

    def _sum(self, cards: Sequence[CardUsage]) -> tuple[Usage, ...]:
        used: Counter[tuple[str, str, str]] = Counter()
        for card in cards:
            for process in card.processes:
                owner = self._owner_of(process.pid)
                if owner is not None and process.used_bytes is not None:
                    used[owner.pod_uid, owner.container_id, card.uuid] += process.used_bytes
        return tuple(Usage(*key, used_bytes) for key, used_bytes in sorted(used.items()))
