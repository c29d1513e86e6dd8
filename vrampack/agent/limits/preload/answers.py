"""What a question of a process comes to: whose it is, which card is meant, what the limit is now, what the ledger says.

Everything that may change (limits, cards, the driver) is looked up at each question. No socket, no clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TypeAlias

from vrampack.agent.limits.cgroups import Owner
from vrampack.agent.limits.preload.ledger import Ledger, Process
from vrampack.agent.limits.preload.wire import ONLY_CARD, Answer, Holding, Kind, Question, Verdict

log = logging.getLogger(__name__)


class Unnamed(Enum):
    """Why there is no figure to answer with."""

    UNLIMITED = "nobody limits it: a previous plugin set it up, or another back end holds limits by now"
    STRANGER = "in no pod that anybody knows: it gets nothing"
    LATER = "the pod's status does not say yet which of its containers this is"
    LEAVING = "what it asks for is held by a process that is ending"


Limits: TypeAlias = Mapping[str, int]
"""Bytes by uuid of the card."""
Whose: TypeAlias = Callable[[Owner | None], Limits | Unnamed]
"""The limits of this container as they are now."""
Minors: TypeAlias = Callable[[], Mapping[str, int]]
"""N of /dev/nvidiaN by uuid of the card; of a MIG instance its parent's."""


class Answers:
    """Answers for one ledger."""

    def __init__(self, ledger: Ledger, *, whose: Whose, minors: Minors, driver_version: Callable[[], str]) -> None:
        self._ledger = ledger
        self._whose = whose
        self._minors = minors
        self._driver_version = driver_version

    def answer(
        self, process: Process, owner: Owner | None, question: Question, *, is_somebody_leaving: bool = False
    ) -> Answer | Unnamed:
        """The answer, or `LATER` or `LEAVING` when it should be asked again soon.

        `is_somebody_leaving`: memory of this container is about to come back, so nothing is refused for want of it yet.
        """
        limits = self._whose(owner)
        if limits is Unnamed.LATER:
            return limits
        if isinstance(limits, Unnamed) or owner is None:
            if question.kind is Kind.HELLO:
                self._ledger.ended(process)
            verdict = Verdict.UNLIMITED if limits is Unnamed.UNLIMITED else Verdict.NO
            if question.kind is Kind.HELLO and verdict is Verdict.NO:
                log.warning("a process gets nothing pid=%s owner=%s why=%s", process.pid, owner, limits)
            return Answer(verdict, question.sequence, driver_version=self._driver(question))
        if question.kind is Kind.HELLO:
            return self._hello(process, owner, question, limits)
        (holding,) = question.holdings
        uuid = self._card(holding.minor, limits)
        if is_somebody_leaving and uuid is not None and not self._has_room(process, uuid, question, limits):
            return Unnamed.LEAVING
        return self._on_card(process, owner, question, (uuid, limits))

    def _hello(self, process: Process, owner: Owner, question: Question, limits: Limits) -> Answer:
        cards = [self._card(each.minor, limits) for each in question.holdings]
        parts = {
            (uuid, each.minor): each.held_bytes
            for uuid, each in zip(cards, question.holdings, strict=True)
            if uuid is not None
        }
        self._ledger.hello(process, owner, parts)
        first = cards[0] if cards else self._card(ONLY_CARD, limits)
        verdict = Verdict.NO_SUCH_CARD if None in cards else Verdict.YES
        return self._said(owner, question, verdict, (first, limits))

    def _on_card(self, process: Process, owner: Owner, question: Question, where: tuple[str | None, Limits]) -> Answer:
        uuid, limits = where
        (holding,) = question.holdings
        if uuid is None:
            return self._said(owner, question, Verdict.NO_SUCH_CARD, where)
        if not self._ledger.knows(process):  # its HELLO came while nobody knew its pod, and was answered no
            self._ledger.hello(process, owner, {})
        verdict = Verdict.YES
        # Who only looks may have given back meanwhile, and says so by its figure.
        if question.kind in (Kind.GIVE, Kind.LOOK):
            self._ledger.give(process, (uuid, holding.minor), holding.held_bytes)
        if question.kind is Kind.HOLD and not self._hold(process, uuid, holding, limits):
            verdict = Verdict.NO
        return self._said(owner, question, verdict, where)

    def _has_room(self, process: Process, uuid: str, question: Question, limits: Limits) -> bool:
        """Whether what is asked for, if anything is, can be had at once."""
        (holding,) = question.holdings
        return (
            question.kind is not Kind.HOLD
            or not self._ledger.knows(process)
            or self._ledger.fits(process, (uuid, holding.minor), holding.held_bytes, limit_bytes=limits[uuid])
        )

    def _hold(self, process: Process, uuid: str, holding: Holding, limits: Limits) -> bool:
        part = uuid, holding.minor
        is_given = self._ledger.hold(process, part, holding.held_bytes, limit_bytes=limits[uuid])
        if not is_given:
            log.debug("refused pid=%s card=%s bytes=%s limit=%s", process.pid, uuid, holding.held_bytes, limits[uuid])
        return is_given

    def _said(self, owner: Owner, question: Question, verdict: Verdict, where: tuple[str | None, Limits]) -> Answer:
        uuid, limits = where
        return Answer(
            verdict,
            question.sequence,
            len(limits),
            0 if uuid is None else limits[uuid],
            0 if uuid is None else self._ledger.used_bytes(owner, uuid),
            self._driver(question),
        )

    def _driver(self, question: Question) -> str:
        return self._driver_version() if question.kind is Kind.HELLO else ""

    def _card(self, minor: int, limits: Iterable[str]) -> str | None:
        """The one card of the container that is meant; None when it is none of them, or may be several."""
        minors = self._minors()
        meant = [uuid for uuid in limits if minor in (ONLY_CARD, minors.get(uuid))]
        return meant[0] if len(meant) == 1 else None
