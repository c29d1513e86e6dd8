"""Pods that may not start: writes an event on each, and names them on its own Node if that lasts, or kubelet would retry for ever.

The extender evicts the pods named there, so that the replacement of a pod of a controller finds another place. A bare or
static pod is kept: nothing would create it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from vrampack.agent.admission.errors import RefusedStartError
from vrampack.agent.admission.fence import ContainerStart, Fence
from vrampack.agent.cluster.refused_pods import RefusedPodsPublisher
from vrampack.agent.events import AgentEventReason
from vrampack.cards.node import CardFacts
from vrampack.kube.events import EventRecorder

log = logging.getLogger(__name__)

CHECK_INTERVAL_SECONDS = 1.0

REASONS_BEYOND_FENCE = frozenset({"limit", "cdi", "api"})
"""Refusals that the fence did not make, so evaluating the start again does not show whether they still hold."""
REJECTION_VALID_SECONDS = 330.0
"""kubelet asks again within five minutes: an older refusal may be over."""


@dataclass(slots=True)
class _RejectedPod:
    start: ContainerStart
    first_rejected_at: float
    reason: str = ""
    last_rejected_at: float = 0.0
    is_named: bool = False


class RejectedPods:
    """The pods that the fence keeps waiting."""

    def __init__(  # noqa: PLR0913 - what it needs, each named
        self,
        fence: Fence,
        events: EventRecorder,
        publisher: RefusedPodsPublisher,
        *,
        cards: Callable[[], Iterable[CardFacts]],
        clock: Callable[[], float],
        publish_after_seconds: float,
        action: Literal["evict", "keep"],
    ) -> None:
        self._fence = fence
        self._events = events
        self._publisher = publisher
        self._cards = cards
        self._clock = clock
        self._publish_after_seconds = publish_after_seconds
        self._action = action
        self._rejected: dict[str, _RejectedPod] = {}

    def record_rejection(self, start: ContainerStart, error: RefusedStartError) -> None:
        """A pod was refused; of several refusals the time of the first counts."""
        pod, now = start.pod.pod, self._clock()
        if pod.uid not in self._rejected:
            self._rejected[pod.uid] = _RejectedPod(start, now)
        refusal = self._rejected[pod.uid]
        refusal.reason, refusal.last_rejected_at = error.reason, now
        self._events.record_pod_event(
            pod, AgentEventReason.START_REFUSED, f"container {start.allocation.container}: {error.text}"
        )

    def forget_pod(self, uid: str) -> None:
        """It started after all, or is gone."""
        if self._rejected.pop(uid, None) is not None:
            self.publish_pods()

    async def run(self) -> None:
        """Publish them periodically, until cancelled."""
        while True:
            self.publish_pods()
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)

    def publish_pods(self) -> None:
        """Name on the Node exactly those pods that have waited long enough and still may not start."""
        if self._action == "keep":
            self._publisher.set_reasons("start", {})
            return
        due = [(uid, refusal) for uid, refusal in self._rejected.items() if self._is_due(refusal)]
        # Those that can be evicted come first, so that pods that stay never fill the list.
        due.sort(key=lambda item: (not _is_replaceable(item[1].start), item[1].first_rejected_at, item[0]))
        for uid, refusal in due:
            if not refusal.is_named:
                refusal.is_named = True
                log.warning("refused pod named pod=%s uid=%s reason=%s", refusal.start.pod.pod, uid, refusal.reason)
        self._publisher.set_reasons("start", {uid: refusal.reason for uid, refusal in due})

    def _is_due(self, rejected: _RejectedPod) -> bool:
        """False if its cards are free by now: kubelet's next attempt succeeds. Other refusals last while kubelet keeps asking."""
        now = self._clock()
        if now - rejected.first_rejected_at < self._publish_after_seconds:
            return False
        if rejected.reason in REASONS_BEYOND_FENCE:
            return now - rejected.last_rejected_at < REJECTION_VALID_SECONDS
        try:
            self._fence.evaluate_start(rejected.start, self._cards())
        except RefusedStartError:
            return True
        return False


def _is_replaceable(start: ContainerStart) -> bool:
    return start.pod.is_controlled and not start.pod.is_static
