"""Decides the questions of processes: finds the container, the card and the current limit, and asks the usage ledger.

Everything that may change (limits, cards, the driver) is looked up at each question. No socket, no clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from vrampack.agent.limits.cgroups import CgroupOwner
from vrampack.agent.limits.preload.usage_ledger import ProcessKey, UsageLedger
from vrampack.agent.limits.preload.wire import (
    ONLY_CARD,
    CardHolding,
    LibraryAnswer,
    LibraryQuestion,
    LibraryVerdict,
    MessageKind,
)
from vrampack.agent.limits.workload import Unresolved

log = logging.getLogger(__name__)


LimitsByCard: TypeAlias = Mapping[str, int]
"""Bytes by uuid of the card."""
FindLimits: TypeAlias = Callable[[CgroupOwner | None], LimitsByCard | Unresolved]
"""The limits of this container as they are now."""
GetMinors: TypeAlias = Callable[[], Mapping[str, int]]
"""N of /dev/nvidiaN by uuid of the card; of a MIG instance its parent's."""


class AllocationDecisions:
    """Answers for one ledger."""

    def __init__(
        self, ledger: UsageLedger, *, find_limits: FindLimits, get_minors: GetMinors, driver_version: Callable[[], str]
    ) -> None:
        self._ledger = ledger
        self._find_limits = find_limits
        self._get_minors = get_minors
        self._driver_version = driver_version

    def decide(
        self,
        process: ProcessKey,
        owner: CgroupOwner | None,
        question: LibraryQuestion,
        *,
        is_memory_returning: bool = False,
    ) -> LibraryAnswer | Unresolved:
        """The answer, or `NAME_PENDING` or `MEMORY_RETURNING` when the question should be decided again soon.

        `is_memory_returning`: the container is about to get memory back, so no question is refused for lack of it yet.
        """
        limits = self._find_limits(owner)
        if limits is Unresolved.NAME_PENDING:
            return limits
        if isinstance(limits, Unresolved) or owner is None:
            if question.kind is MessageKind.HELLO:
                self._ledger.remove_process(process)
            verdict = LibraryVerdict.UNLIMITED if limits is Unresolved.UNLIMITED else LibraryVerdict.NO
            if question.kind is MessageKind.HELLO and verdict is LibraryVerdict.NO:
                log.warning("process refused pid=%s owner=%s reason=%s", process.pid, owner, limits)
            return LibraryAnswer(verdict, question.sequence, driver_version=self._get_driver_version(question))
        if question.kind is MessageKind.HELLO:
            return self._decide_hello(process, owner, question, limits)
        (holding,) = question.holdings
        uuid = _find_card(holding.minor, limits, self._get_minors())
        if is_memory_returning and uuid is not None and not self._has_room(process, uuid, question, limits):
            return Unresolved.MEMORY_RETURNING
        return self._decide_on_card(process, owner, question, (uuid, limits))

    def _decide_hello(
        self, process: ProcessKey, owner: CgroupOwner, question: LibraryQuestion, limits: LimitsByCard
    ) -> LibraryAnswer:
        minors = self._get_minors()
        cards = [_find_card(each.minor, limits, minors) for each in question.holdings]
        parts = {
            (uuid, each.minor): each.held_bytes
            for uuid, each in zip(cards, question.holdings, strict=True)
            if uuid is not None
        }
        self._ledger.set_holdings(process, owner, parts)
        first = cards[0] if cards else _find_card(ONLY_CARD, limits, minors)
        verdict = LibraryVerdict.NO_SUCH_CARD if None in cards else LibraryVerdict.YES
        return self._build_answer(owner, question, verdict, (first, limits))

    def _decide_on_card(
        self,
        process: ProcessKey,
        owner: CgroupOwner,
        question: LibraryQuestion,
        card_and_limits: tuple[str | None, LimitsByCard],
    ) -> LibraryAnswer:
        uuid, limits = card_and_limits
        (holding,) = question.holdings
        if uuid is None:
            return self._build_answer(owner, question, LibraryVerdict.NO_SUCH_CARD, card_and_limits)
        if not self._ledger.has_process(process):  # its HELLO came before its pod was known, and was refused
            self._ledger.set_holdings(process, owner, {})
        verdict = LibraryVerdict.YES
        # A process that only looks may have freed memory meanwhile, which its figure shows.
        if question.kind in (MessageKind.GIVE, MessageKind.LOOK):
            self._ledger.uncharge(process, (uuid, holding.minor), holding.held_bytes)
        if question.kind is MessageKind.HOLD and not self._try_charge(process, uuid, holding, limits):
            verdict = LibraryVerdict.NO
        return self._build_answer(owner, question, verdict, card_and_limits)

    def _has_room(self, process: ProcessKey, uuid: str, question: LibraryQuestion, limits: LimitsByCard) -> bool:
        """Whether the question asks for no memory, or for an amount that is available now."""
        (holding,) = question.holdings
        return (
            question.kind is not MessageKind.HOLD
            or not self._ledger.has_process(process)
            or self._ledger.has_room(process, (uuid, holding.minor), holding.held_bytes, limit_bytes=limits[uuid])
        )

    def _try_charge(self, process: ProcessKey, uuid: str, holding: CardHolding, limits: LimitsByCard) -> bool:
        part = uuid, holding.minor
        is_given = self._ledger.try_charge(process, part, holding.held_bytes, limit_bytes=limits[uuid])
        if not is_given:
            log.debug(
                "allocation refused pid=%s card=%s bytes=%s limit=%s",
                process.pid,
                uuid,
                holding.held_bytes,
                limits[uuid],
            )
        return is_given

    def _build_answer(
        self,
        owner: CgroupOwner,
        question: LibraryQuestion,
        verdict: LibraryVerdict,
        card_and_limits: tuple[str | None, LimitsByCard],
    ) -> LibraryAnswer:
        uuid, limits = card_and_limits
        return LibraryAnswer(
            verdict,
            question.sequence,
            len(limits),
            0 if uuid is None else limits[uuid],
            0 if uuid is None else self._ledger.get_used_bytes(owner, uuid),
            self._get_driver_version(question),
        )

    def _get_driver_version(self, question: LibraryQuestion) -> str:
        return self._driver_version() if question.kind is MessageKind.HELLO else ""


def _find_card(minor: int, limits: Iterable[str], minors: Mapping[str, int]) -> str | None:
    """The container's card with this minor; None when it is none of them, or may be several."""
    meant = [uuid for uuid in limits if minor in (ONLY_CARD, minors.get(uuid))]
    return meant[0] if len(meant) == 1 else None
