"""How many pods may still be evicted for others in this hour."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence

from extender.settings import PreemptionSettings
from vrampack.cards.pod import Pod

HOUR_SECONDS = 3600.0


class EvictionBudget:
    """The evictions of the last hour, in all and by namespace. A restart forgets them."""

    def __init__(self, settings: PreemptionSettings, *, clock: Callable[[], float]) -> None:
        self._most = settings.max_evictions_per_hour
        self._most_in_namespace = settings.max_evictions_per_namespace_per_hour
        self._clock = clock
        self._evicted: deque[tuple[float, str]] = deque()

    def record_eviction(self, victim: Pod) -> None:
        self._evicted.append((self._clock(), victim.namespace))

    def has_room(self, victims: Sequence[Pod]) -> bool:
        while self._evicted and self._evicted[0][0] <= self._clock() - HOUR_SECONDS:
            self._evicted.popleft()
        wanted = Counter(victim.namespace for victim in victims)
        spent = Counter(namespace for _, namespace in self._evicted)
        return len(self._evicted) + len(victims) <= self._most and all(
            spent[namespace] + count <= self._most_in_namespace for namespace, count in wanted.items()
        )
