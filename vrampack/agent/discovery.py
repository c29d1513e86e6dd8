"""Looks after the node's cards: which there are, and whether each may be given out. Says so on change only.

`step` is one look (the list of cards, one check of each), `hear` is one wait for the driver's own reports; `run` does
both for ever. A driver that fails or hangs takes no card off the list: after some failed looks they are unhealthy.
What becomes of cards that are no longer there is written in `roster.py`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from vrampack.agent.health import Health, XidRules
from vrampack.agent.nvml.driver import Driver, Gpu, Inventory, Xid
from vrampack.agent.nvml.errors import DriverError, NoDriverError
from vrampack.agent.roster import Known, is_hit, is_recut, listed
from vrampack.agent.settings import AgentConfiguration
from vrampack.cards.node import CardFacts
from vrampack.cards.units import DEFAULT_UNIT_MIB, count_card_units

logger = logging.getLogger(__name__)

Kind: TypeAlias = Literal["appeared", "vanished", "dropped", "unhealthy", "recovered"]

_VENDOR = frozenset({"nvidia", "tesla"})
"""Words that some drivers put before a model and others do not."""


@dataclass(frozen=True, slots=True)
class Looking:
    """How the cards are looked at, and which are ours."""

    unit_mib: int = DEFAULT_UNIT_MIB
    units_per_card: Mapping[str, int] = field(default_factory=dict)
    """Units by model, for models whose memory does not divide as one would have it. Any usual spelling of the model."""
    include: frozenset[str] = frozenset()
    """Only these, when there are any: uuids of cards, or of GPUs for all their instances."""
    exclude: frozenset[str] = frozenset()
    """Not these: somebody else gives them out."""
    check_seconds: float = 5
    fail_after_checks: int = 3
    """So many failed checks in a row make a card unhealthy: one call may fail for reasons that pass."""
    recover_after_checks: int = 3
    xids: XidRules = field(default_factory=XidRules)


def looking(settings: AgentConfiguration) -> Looking:
    """As the configuration has it."""
    health = settings.health
    return Looking(
        unit_mib=settings.unit_mib,
        units_per_card=settings.units_per_card,
        include=frozenset(settings.cards.include),
        exclude=frozenset(settings.cards.exclude),
        check_seconds=health.check_seconds,
        recover_after_checks=health.recover_after_checks,
        xids=XidRules(frozenset(health.xids.ignore), frozenset(health.xids.fatal)),
    )


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that happened to one card."""

    kind: Kind
    gpu: Gpu
    text: str = ""


def untold(notice: Notice) -> None:
    """For who only looks."""


def unheard(xid: Xid) -> None:
    """For who counts no reports."""


def unheeded() -> None:
    """For who counts no failures."""


class Discovery:
    """The cards of this node."""

    def __init__(  # noqa: PLR0913 - what it asks and whom it tells, each named
        self,
        driver: Driver,
        looking: Looking,
        *,
        is_held: Callable[[str], bool],
        tell: Callable[[Notice], None] = untold,
        heard: Callable[[Xid], None] = unheard,
        failed: Callable[[], None] = unheeded,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`is_held(uuid)`: whether a live pod of this node holds units of that card.

        `heard` is told each report of the driver, `failed` of each look at the cards that it did not answer.
        """
        self._driver = driver
        self._looking = looking
        self._pinned = {_spelling(model): units for model, units in looking.units_per_card.items()}
        self._is_held = is_held
        self._tell = tell
        self._heard = heard
        self._failed_look = failed
        self._sleep = sleep
        self._known: dict[str, Known] = {}
        self._failed_looks = 0
        self._is_settled = False
        """Whether it is known what is there, if only that there is nothing: before that, nothing is published."""
        self._published: tuple[CardFacts, ...] | None = None
        self._problem = ""
        self._is_outdated = False
        self._driver_version = ""

    @property
    def cards(self) -> tuple[CardFacts, ...]:
        """As they are to be published; empty before the first `step` that said "changed"."""
        return self._published or ()

    @property
    def problem(self) -> str:
        """Why the driver cannot be asked now; empty when it can."""
        return self._problem

    @property
    def is_outdated(self) -> bool:
        """The driver was exchanged under this process: a restart of the container brings the library that fits it."""
        return self._is_outdated

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why cards are unhealthy, by uuid."""
        return {uuid: known.health.reason for uuid, known in self._known.items() if not known.health.is_healthy}

    @property
    def gpus(self) -> Mapping[str, Gpu]:
        """What the driver says of each card, by uuid."""
        return {uuid: known.gpu for uuid, known in self._known.items()}

    @property
    def driver_version(self) -> str:
        """Empty while no driver was seen."""
        return self._driver_version

    async def run(self, changed: Callable[[], None]) -> None:
        """Look and listen until cancelled; `changed` is called when `cards` has changed."""
        if await self.step():
            changed()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look(changed))
            tasks.create_task(self._listen(changed))

    async def step(self) -> bool:
        """One look at everything. Whether `cards` is another list now."""
        try:
            inventory = await self._driver.cards()
        except DriverError as error:
            self._failed(error)
        else:
            self._failed_looks, self._is_outdated, self._is_settled = 0, False, True
            self._say(_unreadable(inventory))
            self._driver_version = inventory.driver_version
            await self._check(self._take(inventory))
        return self._publish()

    async def hear(self) -> bool:
        """One wait for what the driver reports. Whether `cards` is another list now."""
        for xid in await self._driver.events(self._looking.check_seconds):
            self._apply(xid)
        return self._publish()

    async def _look(self, changed: Callable[[], None]) -> None:
        while True:
            await self._sleep(self._looking.check_seconds)
            if await self.step():
                changed()

    async def _listen(self, changed: Callable[[], None]) -> None:
        while True:
            try:
                if await self.hear():
                    changed()
            except DriverError as error:  # its cards are judged by their checks meanwhile
                logger.debug("no events error=%s", error)
                await self._sleep(self._looking.check_seconds)

    def _failed(self, error: DriverError) -> None:
        """The driver did not even list its cards: each of them failed a check."""
        self._failed_look()
        self._failed_looks += 1
        self._is_outdated = error.is_outdated
        is_none = isinstance(error, NoDriverError)
        self._is_settled = self._is_settled or is_none or self._failed_looks >= self._looking.fail_after_checks
        self._say(f"{error}; once a driver is installed, restart this pod" if is_none else str(error))
        for uuid in self._known:
            self._judge(uuid, error)

    def _take(self, inventory: Inventory) -> Collection[str]:
        """Keep the list in step with the driver's; returns the cards that are there and can be checked."""
        found = {gpu.uuid: gpu for gpu in inventory.cards if self._is_ours(gpu)}
        for gpu in found.values():
            known = self._known.get(gpu.uuid)
            if known is None:
                self._note("appeared", gpu, f"{gpu.memory_mib} MiB, {self._units(gpu)} units")
            health = known.health if known is not None else Health()
            self._known[gpu.uuid] = Known(gpu, health)
        unreadable = {card.uuid: card.error for card in inventory.unreadable if card.uuid is not None}
        for uuid, known in list(self._known.items()):
            if uuid in found:
                continue
            if error := unreadable.get(uuid) or unreadable.get(known.gpu.mig_parent or ""):
                self._judge(uuid, error)
            else:
                self._miss(known, inventory)
        return found.keys()

    def _miss(self, known: Known, inventory: Inventory) -> None:
        """A card that is not listed any more: `roster.py` has the rule."""
        gpu, was_cut = known.gpu, is_recut(known.gpu, inventory)
        if was_cut and not self._is_held(gpu.uuid):
            del self._known[gpu.uuid]
            self._note("dropped", gpu, "it was cut away and no pod holds it")
            return
        reason = "its GPU was cut anew" if was_cut else "the driver no longer lists it"
        if not known.is_missing:
            self._note("vanished", gpu, f"{reason}; it stays listed for the pods that hold it")
        self._known[gpu.uuid] = Known(gpu, known.health.broken(reason), is_missing=True)

    async def _check(self, uuids: Collection[str]) -> None:
        """One card that hangs keeps no other from its check."""
        outcomes = await asyncio.gather(*(self._outcome(uuid) for uuid in uuids))
        for uuid, error in zip(uuids, outcomes, strict=True):
            self._judge(uuid, error)

    async def _outcome(self, uuid: str) -> DriverError | None:
        try:
            await self._driver.check(uuid)
        except DriverError as error:
            return error
        return None

    def _judge(self, uuid: str, error: DriverError | None) -> None:
        health = self._known[uuid].health
        if error is None:
            self._change(uuid, health.passed(needed=self._looking.recover_after_checks))
        elif error.is_lost:
            self._change(uuid, health.broken(str(error)))
        else:
            self._change(uuid, health.failed(str(error), allowed=self._looking.fail_after_checks))

    def _apply(self, xid: Xid) -> None:
        matters = self._looking.xids.matters(xid.number)
        self._heard(xid)
        logger.log(
            logging.WARNING if matters else logging.INFO,
            "xid number=%d card=%s matters=%s",
            xid.number,
            xid.uuid or "unknown",
            matters,
        )
        if not matters:
            return
        for uuid, known in self._known.items():
            if is_hit(known.gpu, xid):
                self._change(uuid, known.health.broken(f"XID {xid.number}"))

    def _change(self, uuid: str, health: Health) -> None:
        known = self._known[uuid]
        self._known[uuid] = replace(known, health=health)
        if known.health.is_healthy and not health.is_healthy:
            self._note("unhealthy", known.gpu, health.reason)
        elif health.is_healthy and not known.health.is_healthy:
            self._note("recovered", known.gpu, f"was: {known.health.reason}")

    def _note(self, kind: Kind, gpu: Gpu, text: str) -> None:
        is_good = kind in ("appeared", "recovered")
        logger.log(
            logging.INFO if is_good else logging.WARNING,
            "card %s uuid=%s index=%d model=%s: %s",
            kind,
            gpu.uuid,
            gpu.index,
            gpu.model,
            text,
        )
        self._tell(Notice(kind, gpu, text))

    def _say(self, problem: str) -> None:
        if problem and problem != self._problem:
            logger.warning("driver problem=%s", problem)
        self._problem = problem

    def _publish(self) -> bool:
        if not self._is_settled:
            return False
        cards = listed(self._known.values(), {uuid: self._units(known.gpu) for uuid, known in self._known.items()})
        is_new = cards != self._published
        self._published = cards
        return is_new

    def _is_ours(self, gpu: Gpu) -> bool:
        names = {gpu.uuid, gpu.mig_parent}
        if names & self._looking.exclude:
            return False
        return not self._looking.include or bool(names & self._looking.include)

    def _units(self, gpu: Gpu) -> int:
        pinned = self._pinned.get(_spelling(gpu.model))
        return pinned if pinned is not None else count_card_units(gpu.memory_mib, self._looking.unit_mib)


def _unreadable(inventory: Inventory) -> str:
    return ", ".join(f"card at index {card.index}: {card.error}" for card in inventory.unreadable)


def _spelling(model: str) -> str:
    """One model, however it is written: `Tesla T4`, `NVIDIA T4`, `tesla-t4`, `T4`."""
    words = re.split(r"[\s_-]+", model.strip().casefold())
    return "-".join(word for word in words if word not in _VENDOR)
