"""Pods on an unhealthy card: an event on each of them, a count, and evictions within a budget.

The agent itself evicts no pod. It names the pods to be evicted on its Node (`refused_pods.py`), a few at a time, and only those on
a card with a lasting verdict. Bare and static pods stay, because nothing would recreate them. The budget is kept in memory:
a restarted agent begins with a full one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.events import AgentEventReason
from vrampack.agent.metrics import AgentMetrics
from vrampack.agent.settings import SickCardEviction
from vrampack.cards.node import CardFacts
from vrampack.cards.records import Record
from vrampack.cards.refused_pods import CARD_UNHEALTHY
from vrampack.kube.events import EventRecorder

CHECK_INTERVAL_SECONDS = 2.0


class SickCardPods:
    """Of one node."""

    def __init__(  # noqa: PLR0913 - its sources and its listeners, each named
        self,
        events: EventRecorder,
        metrics: AgentMetrics,
        settings: SickCardEviction,
        *,
        list_pods: Callable[[], Iterable[LocalPod]],
        get_cards: Callable[[], Iterable[CardFacts]],
        clock: Callable[[], float],
        on_evictions_changed: Callable[[Mapping[str, str]], None],
    ) -> None:
        """`on_evictions_changed` gets the pods to evict, reasons by uid, whenever they change."""
        self._events = events
        self._metrics = metrics
        self._settings = settings
        self._list_pods = list_pods
        self._get_cards = get_cards
        self._clock = clock
        self._on_evictions_changed = on_evictions_changed
        self._reported: set[tuple[str, str]] = set()
        """Pairs of pod and card that have had their event, while the pod exists and the card is unhealthy."""
        self._evictions: dict[str, str] = {}
        self._spent: deque[float] = deque()
        """The times of the evictions requested in the last `per_minutes`."""

    async def run(self) -> None:
        """Check every few seconds, until cancelled."""
        while True:
            self.report_pods()
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)

    def report_pods(self) -> None:
        """Check all pods once."""
        sick = {card.uuid: card for card in self._get_cards() if card.reason and card.uuid is not None}
        counts = dict.fromkeys(sick.values(), 0)
        found: set[tuple[str, str]] = set()
        evictions: dict[str, str] = {}
        for pod in self._list_pods():
            uid = pod.pod.uid
            for uuid in _list_recorded_uuids(pod):
                card = sick.get(uuid)
                if card is None:
                    continue
                counts[card] += 1
                found.add((uid, uuid))
                text = f"card {uuid} of this pod is unhealthy: {card.reason}"
                if (uid, uuid) not in self._reported:
                    self._events.record_pod_event(pod.pod, AgentEventReason.ON_UNHEALTHY_CARD, text)
                if uid not in evictions and self._must_leave(pod, card):
                    evictions[uid] = CARD_UNHEALTHY
        self._reported = found
        self._metrics.show_unhealthy_card_pods(counts)
        if evictions != self._evictions:
            self._evictions = evictions
            self._on_evictions_changed(evictions)

    def _must_leave(self, pod: LocalPod, card: CardFacts) -> bool:
        """Whether its eviction was requested already, or may be requested now."""
        if card.verdict is None or not pod.is_controlled or pod.is_static or pod.pod.is_terminating:
            return False
        if pod.pod.uid in self._evictions:
            return True
        now = self._clock()
        while self._spent and now - self._spent[0] >= self._settings.per_minutes * 60:
            self._spent.popleft()
        if len(self._spent) >= self._settings.pods:
            return False
        self._spent.append(now)
        return True


def _list_recorded_uuids(pod: LocalPod) -> Iterator[str]:
    record = pod.pod.record
    if pod.is_active and isinstance(record, Record):
        yield from sorted({share.uuid for share in record.shares if share.uuid is not None})
