"""The Node condition `VrampackCardsHealthy`: written when it changes, and never as a heartbeat.

A change of a node's condition wakes the pending pods of the cluster. So the condition is compared with what the watch shows,
and `lastHeartbeatTime` is that of the last change.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from vrampack.agent.cluster.own_node import OwnNode
from vrampack.backoff import Backoff
from vrampack.cards.node import CardFacts
from vrampack.cards.well_known import CARDS_CONDITION
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.retry_backoff import extend_pause

log = logging.getLogger(__name__)

WRITE_TIMEOUT_SECONDS = 10.0
REVIEW_SECONDS = 60.0
"""By then the watch has shown the last write. The condition is compared with the watch again, in case the Node was replaced."""
BACKOFF = Backoff(first_seconds=1.0, longest_seconds=300.0)
"""After failed writes: an admission policy of an older release may refuse them for ever."""
MAX_MESSAGE_LENGTH = 1000
"""The admission policy allows 1024."""


@dataclass(frozen=True, slots=True)
class CardsState:
    """The content of the condition."""

    status: str
    reason: str
    message: str


def describe_cards(cards: Iterable[CardFacts]) -> CardsState | None:
    """The condition for these cards; None when there are none."""
    listed = sorted(cards, key=lambda card: card.index)
    if not listed:
        return None
    sick = [f"card {card.index} ({card.uuid}): {card.reason}" for card in listed if not card.healthy]
    if not sick:
        return CardsState("True", "CardsHealthy", "every card of this node is healthy")
    return CardsState("False", "CardUnhealthy", "; ".join(sick)[:MAX_MESSAGE_LENGTH])


class CardsCondition:
    """Of one node."""

    def __init__(
        self,
        api: Api,
        node: str,
        own_node: OwnNode,
        *,
        on_write: Callable[[], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._node = node
        self._own_node = own_node
        self._on_write = on_write
        self._now = now
        self._wanted: CardsState | None = None
        self._written: CardsState | None = None
        self._changed = asyncio.Event()

    def set_cards(self, cards: Iterable[CardFacts]) -> None:
        """These are the cards from now on."""
        self._wanted = describe_cards(cards)
        self._changed.set()

    async def run(self) -> None:
        """Write each change, until cancelled."""
        await self._own_node.wait_for_sync()
        failures = 0
        while True:
            await self._wait_for_change()
            if self._wanted is None or self._wanted == (self._written or self._read_current()):
                continue
            error = await self._write(self._wanted)
            if error is None:
                failures = 0
                continue
            failures += 1
            await asyncio.sleep(extend_pause(BACKOFF.compute_seconds(failures), error))
            self._changed.set()

    async def _wait_for_change(self) -> None:
        try:
            async with asyncio.timeout(REVIEW_SECONDS):
                await self._changed.wait()
        except TimeoutError:
            self._written = None
        self._changed.clear()

    def _read_current(self) -> CardsState | None:
        shown = self._own_node.conditions.get(CARDS_CONDITION)
        return None if shown is None else CardsState(shown.status, shown.reason or "", shown.message or "")

    async def _write(self, state: CardsState) -> RefusedError | NoAnswerError | None:
        """Returns the error, if there was one."""
        shown = self._own_node.conditions.get(CARDS_CONDITION)
        moment = datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": CARDS_CONDITION,
            "status": state.status,
            "reason": state.reason,
            "message": state.message,
            "lastHeartbeatTime": moment,
            "lastTransitionTime": (shown.last_transition_time if shown and shown.status == state.status else None)
            or moment,
        }
        try:
            await self._api.patch_node_condition(self._node, condition, timeout_seconds=WRITE_TIMEOUT_SECONDS)
        except (RefusedError, NoAnswerError) as error:
            log.warning("node condition not written node=%s error=%s", self._node, error)
            self._written = None  # it may have been written all the same: the watch will tell
            return error
        self._written = state
        self._on_write()
        log.info("node condition written node=%s status=%s message=%s", self._node, state.status, state.message)
        return None
