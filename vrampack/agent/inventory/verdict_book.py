"""The verdicts on a node's cards, including cards that are not listed now, and the heals by which operators end them.

A verdict is about a GPU rather than a card: a card that appears on a GPU with a verdict (another MIG instance, or the whole
GPU again) inherits it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from vrampack.agent.inventory.health import CardHealth
from vrampack.agent.inventory.known_cards import KnownCard
from vrampack.agent.inventory.verdicts import CardFault, drop_waived, is_repaired, judge_xid, list_faults
from vrampack.agent.inventory.xid_actions import XidAdvice
from vrampack.agent.nvml.driver import Gpu, GpuCondition
from vrampack.cards.card_verdicts import CardHeal, StoredVerdict
from vrampack.cards.node import CardVerdict

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id(path: Path = BOOT_ID) -> str:
    """An id that changes with each boot and is the same in every container; empty when it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


class VerdictBook:
    """Of one node."""

    def __init__(
        self,
        *,
        boot: str = "",
        now: Callable[[], float] = time.time,
    ) -> None:
        self._boot = boot
        self._now = now
        self._read_heals: Callable[[], Mapping[str, CardHeal]] = dict
        self._restored = asyncio.Event()
        self._restored.set()
        self._absent: dict[str, StoredVerdict] = {}

    @property
    def absent(self) -> tuple[StoredVerdict, ...]:
        """The verdicts on cards that are not listed, for the next agent to read."""
        return tuple(self._absent[uuid] for uuid in sorted(self._absent))

    def follow_node(self, read_heals: Callable[[], Mapping[str, CardHeal]]) -> None:
        """Store verdicts on the Node: no card is checked until `restore`. `read_heals` gives the operators' heals, by uuid."""
        self._read_heals = read_heals
        self._restored.clear()

    def restore(self, stored: Iterable[StoredVerdict]) -> None:
        """Take over what the previous agent wrote."""
        self._absent |= {each.uuid: each for each in stored}
        self._restored.set()

    async def wait_until_restored(self) -> None:
        """Wait for `restore`; returns at once when there is no Node to read."""
        await self._restored.wait()

    def admit_card(self, gpu: Gpu, others: Iterable[KnownCard]) -> CardHealth:
        """The initial health of a card: it inherits the verdicts on its GPU, if any."""
        own = self._absent.pop(gpu.uuid, None)
        whole = gpu.mig_parent or gpu.uuid
        found = [own] if own is not None else [each for each in self._absent.values() if each.gpu == whole]
        health = CardHealth()
        for each in found:
            health = health.mark_out(each.reason, each.verdict)
        if own is None:
            for known in others:
                if (known.gpu.mig_parent or known.gpu.uuid) == whole and known.health.verdict is not None:
                    health = health.mark_out(known.health.reason, known.health.verdict)
        return health

    def keep_dropped(self, known: KnownCard) -> None:
        """A card leaves the list: keep its verdict."""
        gpu, health = known.gpu, known.health
        if health.verdict is not None:
            self._absent[gpu.uuid] = StoredVerdict(gpu.uuid, gpu.mig_parent or gpu.uuid, health.reason, health.verdict)

    def forget_healed(self, gpu: Gpu) -> None:
        """A card of that GPU is repaired: forget the verdicts of earlier cards of it."""
        whole = gpu.mig_parent or gpu.uuid
        self._absent = {uuid: each for uuid, each in self._absent.items() if each.gpu != whole}

    def drop_healed_absent(self, listed: Collection[str]) -> None:
        """Forget healed verdicts on cards that are not listed: no check of such a card would do it."""
        heals = self._read_heals()
        self._absent = {
            uuid: each
            for uuid, each in self._absent.items()
            if uuid in listed or (heal := heals.get(uuid)) is None or each.verdict.since > heal.at
        }

    def list_faults(self, gpu: Gpu, condition: GpuCondition) -> tuple[CardFault, ...]:
        """What keeps pods off the card now, without the faults that an operator waived."""
        heal = self._find_heal(gpu)
        return drop_waived(list_faults(condition), heal.waived if heal is not None else ())

    def mark_faults(self, health: CardHealth, faults: Iterable[CardFault]) -> CardHealth:
        for fault in faults:
            health = health.mark_out(fault.reason, CardVerdict(fault.cause, fault.action, self._moment(), self._boot))
        return health

    def judge_xid(
        self, number: int, advice: XidAdvice, condition: GpuCondition, driver_version: str
    ) -> CardVerdict | None:
        return judge_xid(number, advice, condition, driver_version, since=self._moment(), boot=self._boot)

    def is_repaired(self, gpu: Gpu, health: CardHealth, condition: GpuCondition) -> bool:
        """Whether there is evidence of the repair, or an operator healed it; called when NVML names no fault."""
        verdict = health.verdict
        if verdict is None:
            return True
        heal = self._find_heal(gpu)
        return (heal is not None and verdict.since <= heal.at) or is_repaired(verdict, condition, self._boot)

    def _find_heal(self, gpu: Gpu) -> CardHeal | None:
        """The latest heal of the card or, for a MIG instance, of its GPU."""
        heals = self._read_heals()
        found = [heals[uuid] for uuid in (gpu.uuid, gpu.mig_parent) if uuid is not None and uuid in heals]
        return max(found, key=lambda heal: heal.at, default=None)

    def _moment(self) -> str:
        return datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
