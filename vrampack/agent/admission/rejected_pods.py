"""Pods that may not start: told once, and evicted when it lasts, or kubelet would ask for them for ever.

A pod of a controller is evicted after a while, so that its replacement finds another place. A bare or static pod is kept:
nothing would create it again.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from vrampack.agent.admission.errors import RefusedStartError
from vrampack.agent.admission.fence import ContainerStart, Fence
from vrampack.agent.cluster.eviction import EVICT_CALL_SECONDS, PodEvictor
from vrampack.agent.events import AgentEventReason
from vrampack.cards.node import CardFacts
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.events import EventRecorder

log = logging.getLogger(__name__)

CHECK_INTERVAL_SECONDS = 1.0
EVICT_RETRY_SECONDS = 10.0
"""Between two tries to evict one pod: a disruption budget may not allow it yet."""


REASONS_BEYOND_FENCE = frozenset({"limit", "cdi", "api"})
"""Refusals that a second look at the cards' room says nothing about."""
REJECTION_VALID_SECONDS = 60.0
"""Kubelet asks again after 10 s, and a little more each time: what it was refused so long ago may be over."""
GONE_STATUSES = (404, 409)
"""The pod is not there any more, or another one has its name."""


@dataclass(slots=True)
class _RejectedPod:
    start: ContainerStart
    next_attempt_at: float
    reason: str = ""
    last_rejected_at: float = 0.0


class RejectedPods:
    """The pods that wait behind the fence."""

    def __init__(  # noqa: PLR0913 - what it needs, each named
        self,
        api: PodEvictor,
        fence: Fence,
        events: EventRecorder,
        *,
        cards: Callable[[], Iterable[CardFacts]],
        on_evicted: Callable[[], None],
        clock: Callable[[], float],
        evict_after_seconds: float,
        action: Literal["evict", "keep"],
    ) -> None:
        self._api = api
        self._fence = fence
        self._events = events
        self._cards = cards
        self._on_evicted = on_evicted
        self._clock = clock
        self._evict_after_seconds = evict_after_seconds
        self._action = action
        self._rejected: dict[str, _RejectedPod] = {}

    def record_rejection(self, start: ContainerStart, error: RefusedStartError) -> None:
        """A pod of the API server was refused; the first time of several counts."""
        pod, now = start.pod.pod, self._clock()
        if pod.uid not in self._rejected:
            self._rejected[pod.uid] = _RejectedPod(start, now + self._evict_after_seconds)
        refusal = self._rejected[pod.uid]
        refusal.reason, refusal.last_rejected_at = error.reason, now
        self._events.record_pod_event(
            pod, AgentEventReason.START_REFUSED, f"container {start.allocation.container}: {error.text}"
        )

    def forget_pod(self, uid: str) -> None:
        """It started after all, or is gone."""
        self._rejected.pop(uid, None)

    async def run(self) -> None:
        """Look after them, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            await self.evict_due_pods()

    async def evict_due_pods(self) -> None:
        """One round: evict the pods that have waited long enough and still may not start."""
        now = self._clock()
        for uid, refusal in list(self._rejected.items()):
            if now < refusal.next_attempt_at or not self._is_still_rejected(refusal):
                continue
            refusal.next_attempt_at = now + EVICT_RETRY_SECONDS
            if self._action == "evict" and refusal.start.pod.is_controlled and not refusal.start.pod.is_static:
                await self._evict(uid, refusal)

    def _is_still_rejected(self, rejected: _RejectedPod) -> bool:
        """Room may be free by now, which kubelet will find when it asks again. What else stood in the way is asked of kubelet."""
        if rejected.reason in REASONS_BEYOND_FENCE:
            return self._clock() - rejected.last_rejected_at < REJECTION_VALID_SECONDS
        try:
            self._fence.evaluate_start(rejected.start, self._cards())
        except RefusedStartError:
            return True
        return False

    async def _evict(self, uid: str, rejected: _RejectedPod) -> None:
        pod = rejected.start.pod.pod
        try:
            await self._api.evict(pod.namespace, pod.name, uid, timeout_seconds=EVICT_CALL_SECONDS)
        except (RefusedError, NoAnswerError) as error:
            log.warning("pod not evicted pod=%s uid=%s error=%s", pod, uid, error)
            if isinstance(error, RefusedError) and error.status in GONE_STATUSES:
                self.forget_pod(uid)
            return
        rejected.next_attempt_at = math.inf  # it may take its time to end
        self._on_evicted()
        log.warning("pod evicted cause=start_refused pod=%s uid=%s", pod, uid)
        self._events.record_pod_event(
            pod, AgentEventReason.EVICTED, "may not start on its card, evicted so that another place is found"
        )
