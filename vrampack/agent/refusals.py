"""Pods that may not start: told once, and evicted when it lasts, or kubelet would ask for them for ever.

A pod that somebody makes anew is evicted after a while, so that its replacement finds another place. A bare or static
pod is kept: nobody would make it again.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from vrampack.agent.errors import RefusedStartError
from vrampack.agent.events import AgentReason
from vrampack.agent.fence import Fence, Start
from vrampack.cards.node import CardFacts
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.events import EventRecorder

log = logging.getLogger(__name__)

EVICT_CALL_SECONDS = 5.0
LOOK_SECONDS = 1.0
AGAIN_SECONDS = 10.0
"""Between two tries to evict one pod: a disruption budget may not allow it yet."""


NOT_THE_FENCE = frozenset({"limit", "ids", "api"})
"""Refusals that a second look at the cards' room says nothing about."""
ASKED_SECONDS = 60.0
"""Kubelet asks again after 10 s, and a little more each time: what it was refused so long ago may be over."""
GONE = (404, 409)
"""The pod is not there any more, or another one has its name."""


class Evicting(Protocol):
    """The one call of `vrampack.kube.client.Api` that is needed here."""

    async def evict(self, namespace: str, name: str, uid: str, *, timeout_seconds: float) -> None: ...


@dataclass(slots=True)
class _Refusal:
    start: Start
    next_look: float
    reason: str = ""
    last: float = 0.0


class Refusals:
    """Those who wait behind the fence."""

    def __init__(  # noqa: PLR0913 - what it needs, each named
        self,
        api: Evicting,
        fence: Fence,
        events: EventRecorder,
        *,
        cards: Callable[[], Iterable[CardFacts]],
        evicted: Callable[[], None],
        clock: Callable[[], float],
        after_seconds: float,
        mode: Literal["evict", "keep"],
    ) -> None:
        self._api = api
        self._fence = fence
        self._events = events
        self._cards = cards
        self._evicted = evicted
        self._clock = clock
        self._after_seconds = after_seconds
        self._mode = mode
        self._waiting: dict[str, _Refusal] = {}

    def refused(self, start: Start, error: RefusedStartError) -> None:
        """A pod of the API server was refused; the first time of several counts."""
        pod, now = start.pod.pod, self._clock()
        if pod.uid not in self._waiting:
            self._waiting[pod.uid] = _Refusal(start, now + self._after_seconds)
        refusal = self._waiting[pod.uid]
        refusal.reason, refusal.last = error.reason, now
        self._events.record_pod_event(pod, AgentReason.START_REFUSED, f"container {start.held.container}: {error.text}")

    def ended(self, uid: str) -> None:
        """It started after all, or is gone."""
        self._waiting.pop(uid, None)

    async def run(self) -> None:
        """Look after those who wait, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """One round: evict who has waited long enough and still may not start."""
        now = self._clock()
        for uid, refusal in list(self._waiting.items()):
            if now < refusal.next_look or not self._still_refused(refusal):
                continue
            refusal.next_look = now + AGAIN_SECONDS
            if self._mode == "evict" and refusal.start.pod.is_controlled and not refusal.start.pod.is_static:
                await self._evict(uid, refusal)

    def _still_refused(self, refusal: _Refusal) -> bool:
        """Room may be free by now, which kubelet will find when it asks again. What else stood in the way is asked of kubelet."""
        if refusal.reason in NOT_THE_FENCE:
            return self._clock() - refusal.last < ASKED_SECONDS
        try:
            self._fence.judge(refusal.start, self._cards())
        except RefusedStartError:
            return True
        return False

    async def _evict(self, uid: str, refusal: _Refusal) -> None:
        pod = refusal.start.pod.pod
        try:
            await self._api.evict(pod.namespace, pod.name, uid, timeout_seconds=EVICT_CALL_SECONDS)
        except (RefusedError, NoAnswerError) as error:
            log.warning("pod not evicted pod=%s uid=%s error=%s", pod, uid, error)
            if isinstance(error, RefusedError) and error.status in GONE:
                self.ended(uid)
            return
        refusal.next_look = math.inf  # it may take its time to end
        self._evicted()
        log.warning("evicted a pod that may not start pod=%s uid=%s", pod, uid)
        self._events.record_pod_event(
            pod, AgentReason.EVICTED, "may not start on its card, evicted so that another place is found"
        )
