"""Watches the node's cards: which exist, and whether each may be given out. It reports only changes.

`refresh_cards` makes one round (list the cards, check each once), `read_xids` waits once for the driver's own reports; `run`
does both until cancelled. A driver that fails or hangs takes no card off the list: after some failed rounds all are unhealthy.
`known_cards.py` says what happens to cards that are no longer there.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from vrampack.agent.inventory.discovery_settings import DiscoverySettings
from vrampack.agent.inventory.driver_problems import describe_failure, describe_unreadable
from vrampack.agent.inventory.health import CardHealth
from vrampack.agent.inventory.known_cards import (
    CardPresence,
    KnownCard,
    find_presence,
    is_affected,
    is_repartitioned,
    list_card_facts,
)
from vrampack.agent.inventory.verdict_book import VerdictBook
from vrampack.agent.inventory.verdicts import ACTION_TEXTS
from vrampack.agent.inventory.xid_actions import XidAction
from vrampack.agent.nvml.driver import Gpu, GpuCondition, GpuDriver, GpuInventory, Xid
from vrampack.agent.nvml.errors import DriverError, NoDriverError
from vrampack.cards.node import CardFacts
from vrampack.cards.units import count_card_units

log = logging.getLogger(__name__)

CardChangeKind: TypeAlias = Literal["appeared", "vanished", "dropped", "unhealthy", "recovered"]

_VENDOR = frozenset({"nvidia", "tesla"})
"""Words that some drivers put before a model and others do not."""


@dataclass(frozen=True, slots=True)
class CardChange:
    """Something that happened to one card."""

    kind: CardChangeKind
    gpu: Gpu
    text: str = ""


def ignore_change(change: CardChange) -> None:
    """For callers that ignore changes."""


def ignore_xid(xid: Xid) -> None:
    """For callers that count no XIDs."""


def ignore_driver_error() -> None:
    """For callers that count no failures."""


class Discovery:
    """The cards of this node."""

    def __init__(  # noqa: PLR0913 - its sources and its listeners, each named
        self,
        driver: GpuDriver,
        settings: DiscoverySettings,
        *,
        is_card_held: Callable[[str], bool],
        on_card_change: Callable[[CardChange], None] = ignore_change,
        on_xid: Callable[[Xid], None] = ignore_xid,
        on_driver_error: Callable[[], None] = ignore_driver_error,
        verdicts: VerdictBook | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`is_card_held(uuid)`: whether a live pod of this node holds units of that card.

        `on_xid` is called with each error that the driver reports, `on_driver_error` for each unanswered check.
        """
        self._driver = driver
        self._settings = settings
        self._units_by_model = {_normalize_model(model): units for model, units in settings.units_per_card.items()}
        self._is_card_held = is_card_held
        self._on_card_change = on_card_change
        self._on_xid = on_xid
        self._on_driver_error = on_driver_error
        self._verdicts = verdicts or VerdictBook()
        self._conditions: dict[str, GpuCondition] = {}
        """What NVML said about each GPU at the last check."""
        self._sleep = sleep
        self._known_cards: dict[str, KnownCard] = {}
        self._failed_lists = 0
        self._inventory: GpuInventory | None = None
        """The last list that the driver gave."""
        self._listed = asyncio.Event()
        """Set, and replaced, at each list that the driver gives."""
        self._is_discovered = False
        """Whether the cards are known, even if there are none: before that, nothing is published."""
        self._published: tuple[CardFacts, ...] | None = None
        self._problem = ""
        self._published_problem = ""
        """Why there are no cards, while there are none."""
        self._is_outdated = False
        self._is_driver_absent = False
        self._driver_version = ""
        self._has_confidential_computing = False

    @property
    def cards(self) -> tuple[CardFacts, ...]:
        """The cards to publish; empty until `refresh_cards` first returns true."""
        return self._published or ()

    @property
    def problem(self) -> str:
        """Why the driver cannot be asked now; empty when it can."""
        return self._problem

    @property
    def is_outdated(self) -> bool:
        """Whether the driver was replaced under this process: a restart of the container brings the library that fits it."""
        return self._is_outdated

    @property
    def is_driver_absent(self) -> bool:
        """Whether the node has no driver, as opposed to one that does not answer or is not seen from here."""
        return self._is_driver_absent

    @property
    def unhealthy_reasons(self) -> Mapping[str, str]:
        """Why cards are unhealthy, by uuid."""
        return {uuid: known.health.reason for uuid, known in self._known_cards.items() if not known.health.is_healthy}

    @property
    def gpus(self) -> Mapping[str, Gpu]:
        """What the driver says about each card, by uuid. Without missing cards: their numbers may be another's by now."""
        return {uuid: known.gpu for uuid, known in self._known_cards.items() if not known.is_missing}

    @property
    def driver_version(self) -> str:
        """Empty while no driver was seen."""
        return self._driver_version

    @property
    def has_confidential_computing(self) -> bool:
        """Whether the driver said at its last answer that confidential computing is on."""
        return self._has_confidential_computing

    def find_presence(self, uuid: str) -> CardPresence:
        """What the driver says now about a card, whether or not it is one of ours."""
        known = self._known_cards.get(uuid)
        if known is not None and known.is_missing:
            return CardPresence.MISSING
        if self._inventory is None or self._failed_lists:
            return CardPresence.UNKNOWN
        return find_presence(uuid, known, self._inventory)

    async def wait_until_known(self, uuids: Collection[str], seconds: float) -> None:
        """Wait until the driver says about each card whether it is there, at most this long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while any(self.find_presence(uuid) is CardPresence.UNKNOWN for uuid in uuids):
                    await self._listed.wait()

    async def run(self, on_cards_changed: Callable[[], None]) -> None:
        """Check cards and read XIDs until cancelled; calls `on_cards_changed` when `cards`, or why there are none, changed."""
        await self._verdicts.wait_until_restored()
        if await self.refresh_cards():
            on_cards_changed()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._refresh_forever(on_cards_changed))
            tasks.create_task(self._read_xids_forever(on_cards_changed))

    async def refresh_cards(self) -> bool:
        """List and check all cards once. Returns whether `cards`, or the reason why it is empty, changed."""
        try:
            inventory = await self._driver.list_gpus()
        except DriverError as error:
            self._record_list_failure(error)
        else:
            self._failed_lists, self._is_outdated, self._is_discovered = 0, False, True
            self._is_driver_absent = False
            self._set_problem(describe_unreadable(inventory))
            self._driver_version = inventory.driver_version
            self._has_confidential_computing = inventory.has_confidential_computing
            checkable = self._merge_inventory(inventory)
            self._inventory = inventory
            listed, self._listed = self._listed, asyncio.Event()
            listed.set()
            await self._read_conditions(checkable)
            await self._check_cards(checkable)
        return self._update_published()

    async def read_xids(self) -> bool:
        """Wait once for the driver's reports. Returns whether `cards` changed."""
        for xid in await self._driver.wait_for_xids(self._settings.check_seconds):
            self._apply_xid(xid)
        return self._update_published()

    async def _refresh_forever(self, on_cards_changed: Callable[[], None]) -> None:
        while True:
            await self._sleep(self._settings.check_seconds)
            if await self.refresh_cards():
                on_cards_changed()

    async def _read_xids_forever(self, on_cards_changed: Callable[[], None]) -> None:
        while True:
            try:
                if await self.read_xids():
                    on_cards_changed()
            except DriverError as error:  # until it works again, only the checks judge the cards
                log.debug("driver events not read error=%s", error)
                await self._sleep(self._settings.check_seconds)

    def _record_list_failure(self, error: DriverError) -> None:
        """The driver did not even list its cards: this counts as a failed check of each."""
        self._on_driver_error()
        self._failed_lists += 1
        self._is_outdated = error.is_outdated
        self._is_driver_absent = isinstance(error, NoDriverError)
        is_certain = self._is_driver_absent or self._failed_lists >= self._settings.fail_after_checks
        self._is_discovered = self._is_discovered or is_certain
        self._set_problem(describe_failure(error))
        for uuid in self._known_cards:
            self._update_health(uuid, error)

    def _merge_inventory(self, inventory: GpuInventory) -> Collection[str]:
        """Update the known cards from the driver's list; returns the cards that are there and can be checked."""
        found = {gpu.uuid: gpu for gpu in inventory.gpus if self._settings.is_selected(gpu)}
        self._verdicts.drop_healed_absent(found)  # first: a new card of the same GPU would take over what was healed
        for gpu in found.values():
            known = self._known_cards.get(gpu.uuid)
            if known is None:
                self._report_change("appeared", gpu, f"{gpu.memory_mib} MiB, {self._count_units(gpu)} units")
                health = self._verdicts.admit_card(gpu, self._known_cards.values())
                if not health.is_healthy:
                    self._report_change("unhealthy", gpu, health.reason)
            else:
                health = known.health
            self._known_cards[gpu.uuid] = KnownCard(gpu, health)
        for uuid, known in list(self._known_cards.items()):
            if uuid in found:
                continue
            if find_presence(uuid, known, inventory) is CardPresence.UNKNOWN and not known.is_missing:
                self._update_health(uuid, _find_list_error(known, inventory))
            else:
                self._mark_missing(known, inventory)
        return found.keys()

    def _mark_missing(self, known: KnownCard, inventory: GpuInventory) -> None:
        """Handle a card that is no longer listed; `known_cards.py` has the rule."""
        gpu, was_cut = known.gpu, is_repartitioned(known.gpu, inventory)
        if was_cut and not self._is_card_held(gpu.uuid):
            del self._known_cards[gpu.uuid]
            self._verdicts.keep_dropped(known)
            self._report_change("dropped", gpu, "its GPU was repartitioned and no pod holds it")
            return
        reason = "its GPU was repartitioned" if was_cut else "the driver no longer lists it"
        if not known.is_missing:
            self._report_change("vanished", gpu, f"{reason}; it stays listed for the pods that hold it")
        self._known_cards[gpu.uuid] = KnownCard(gpu, known.health.mark_unhealthy(reason), is_missing=True)

    async def _check_cards(self, uuids: Collection[str]) -> None:
        """Check the cards at once, so that one that hangs does not delay the others."""
        outcomes = await asyncio.gather(*(self._check_card(uuid) for uuid in uuids))
        for uuid, error in zip(uuids, outcomes, strict=True):
            self._update_health(uuid, error)

    async def _check_card(self, uuid: str) -> DriverError | None:
        try:
            await self._driver.check_gpu(uuid)
        except DriverError as error:
            return error
        return None

    async def _read_conditions(self, uuids: Collection[str]) -> None:
        """Read the condition of these cards' GPUs. One that cannot be read counts as unknown until the next round."""
        gpus = sorted({self._known_cards[uuid].gpu_uuid for uuid in uuids})
        found = await asyncio.gather(*(self._read_condition(uuid) for uuid in gpus))
        self._conditions = dict(zip(gpus, found, strict=True))

    async def _read_condition(self, uuid: str) -> GpuCondition:
        try:
            return await self._driver.read_condition(uuid)
        except DriverError as error:
            log.debug("condition not read gpu=%s error=%s", uuid, error)
            return GpuCondition()

    def _update_health(self, uuid: str, error: DriverError | None) -> None:
        known = self._known_cards[uuid]
        health, condition = known.health, self._conditions.get(known.gpu_uuid, GpuCondition())
        faults = self._verdicts.list_faults(known.gpu, condition)
        if faults:
            self._set_health(uuid, self._verdicts.mark_faults(health, faults))
        elif error is None:
            is_repaired = self._verdicts.is_repaired(known.gpu, health, condition)
            required = self._settings.recover_after_checks
            self._set_health(uuid, health.record_clean_check(required_checks=required, is_repaired=is_repaired))
        elif error.is_lost:
            self._set_health(uuid, health.mark_unhealthy(str(error)))
        else:
            self._set_health(
                uuid, health.record_failed_check(str(error), max_failures=self._settings.fail_after_checks)
            )

    def _apply_xid(self, xid: Xid) -> None:
        advice = self._settings.xids.find_advice(xid.number)
        matters = advice.action not in (XidAction.NONE, XidAction.RESTART_APP)
        self._on_xid(xid)
        log.log(
            logging.WARNING if matters else logging.INFO,
            "xid reported number=%d card=%s action=%s",
            xid.number,
            xid.uuid or "unknown",
            advice.action,
        )
        if not matters:
            return
        for uuid, known in self._known_cards.items():
            if not is_affected(known.gpu, xid):
                continue
            condition = self._conditions.get(known.gpu_uuid, GpuCondition())
            verdict = self._verdicts.judge_xid(xid.number, advice, condition, self._driver_version)
            if verdict is None or xid.uuid is None:  # an XID that may be about any card is not a verdict on each
                self._set_health(uuid, known.health.mark_unhealthy(f"XID {xid.number}"))
            else:
                reason = f"XID {xid.number}: {ACTION_TEXTS[verdict.action]}"
                self._set_health(uuid, known.health.mark_out(reason, verdict))

    def _set_health(self, uuid: str, health: CardHealth) -> None:
        known = self._known_cards[uuid]
        self._known_cards[uuid] = replace(known, health=health)
        is_new_verdict = health.verdict is not None and known.health.verdict is None
        if not health.is_healthy and (known.health.is_healthy or is_new_verdict):
            self._report_change("unhealthy", known.gpu, health.reason)
        elif health.is_healthy and not known.health.is_healthy:
            self._report_change("recovered", known.gpu, f"was: {known.health.reason}")
            if known.health.verdict is not None:
                self._verdicts.forget_healed(known.gpu)

    def _report_change(self, kind: CardChangeKind, gpu: Gpu, text: str) -> None:
        is_good = kind in ("appeared", "recovered")
        log.log(
            logging.INFO if is_good else logging.WARNING,
            "card changed kind=%s uuid=%s index=%d model=%s text=%s",
            kind,
            gpu.uuid,
            gpu.index,
            gpu.model,
            text,
        )
        self._on_card_change(CardChange(kind, gpu, text))

    def _set_problem(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.warning("driver not usable problem=%s", problem)
        self._problem = problem

    def _update_published(self) -> bool:
        if not self._is_discovered:
            return False
        cards = list_card_facts(
            self._known_cards.values(),
            {uuid: self._count_units(known.gpu) for uuid, known in self._known_cards.items()},
        )
        problem = "" if cards else self._problem
        is_new = cards != self._published or problem != self._published_problem
        self._published, self._published_problem = cards, problem
        return is_new

    def _count_units(self, gpu: Gpu) -> int:
        pinned = self._units_by_model.get(_normalize_model(gpu.model))
        return pinned if pinned is not None else count_card_units(gpu.memory_mib, self._settings.unit_mib)


def _find_list_error(known: KnownCard, inventory: GpuInventory) -> DriverError:
    """Why a list that is not complete lacks the card."""
    for card in inventory.unreadable:
        if card.uuid in (known.gpu.uuid, known.gpu_uuid):
            return card.error
    return DriverError(f"the driver lists it no longer, and does not describe a card: {describe_unreadable(inventory)}")


def _normalize_model(model: str) -> str:
    """The same text for all spellings of a model: `Tesla T4`, `NVIDIA T4`, `tesla-t4`, `T4`."""
    words = re.split(r"[\s_-]+", model.strip().casefold())
    return "-".join(word for word in words if word not in _VENDOR)
