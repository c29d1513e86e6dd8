"""How often the cluster gets each request: distinct requests with their weights."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from vrampack.cards.host_room import HostResources
from vrampack.cards.request import CardRequest

MAX_LEARNED_REQUESTS = 512
"""How many distinct requests are remembered; the rarest are forgotten first."""
LEARNING_WINDOW = 16_384
"""After this many arrivals all counts are halved, so that old arrivals lose weight."""
FIRST_FORECAST = 32
"""Arrivals after which the mix is first used."""
FORECAST_GROWTH = 1.25
"""A forecast is recomputed when this many times as many arrivals have been seen .."""
MAX_FORECAST_INTERVAL = 1024
""".. and at the latest after this many arrivals."""


class MixedRequest(NamedTuple):
    """What one pod asks for."""

    cards: CardRequest | None
    """None: it asks only for CPU and memory of a host."""
    host: HostResources | None = None
    """None: not known."""


@dataclass(frozen=True, slots=True)
class RequestMix:
    """Requests with their weights, in any unit. Empty: nothing is known."""

    weights: Mapping[MixedRequest, float] = field(default_factory=dict)

    def list_typical_requests(self, coverage: float) -> list[tuple[MixedRequest, float]]:
        """The most frequent requests that together make up this share of all, with their shares among themselves.

        Requests that differ only in main memory count as one, as in the FGD study, and as asking for none. Which of several
        equally frequent requests are typical does not depend on the order in which they came.
        """
        merged: defaultdict[MixedRequest, float] = defaultdict(float)
        for request, weight in self.weights.items():
            host = None if request.host is None else HostResources(request.host.cpu_milli, 0)
            merged[MixedRequest(request.cards, host)] += weight
        ordered = sorted(merged.items(), key=lambda each: (-each[1], _list_sizes(each[0])))
        wanted, total, typical = coverage * sum(merged.values()), 0.0, []
        for request, weight in ordered:
            typical.append((request, weight))
            total += weight
            if total >= wanted:
                break
        return [(request, weight / total) for request, weight in typical]


def _list_sizes(request: MixedRequest) -> tuple[int, int, tuple[str, ...], int]:
    """The sort key for equally frequent requests."""
    cards, cpu_milli = request.cards, 0 if request.host is None else request.host.cpu_milli
    if cards is None:
        return 0, 0, (), cpu_milli
    return cards.count, cards.units, tuple(sorted(cards.models or ())), cpu_milli


def count_requests(requests: Iterable[MixedRequest]) -> RequestMix:
    """The mix of these requests."""
    return RequestMix(dict(Counter(requests)))


class LearnedMix:
    """The mix of the requests seen so far: it begins empty, and forgets slowly."""

    def __init__(self) -> None:
        self._weights: dict[MixedRequest, float] = {}
        self._total = 0.0
        self._arrivals = 0
        self._next_forecast = FIRST_FORECAST

    @property
    def is_forecast_due(self) -> bool:
        """Whether enough requests came since the mix was last taken to make a new forecast worthwhile."""
        return self._arrivals >= self._next_forecast

    def count_request(self, request: MixedRequest) -> None:
        """One more pod asked for this."""
        self._arrivals += 1
        self._weights[request] = self._weights.get(request, 0.0) + 1.0
        self._total += 1.0
        if self._total >= LEARNING_WINDOW:
            self._weights = {each: weight / 2 for each, weight in self._weights.items()}
            self._total /= 2
        if len(self._weights) > 2 * MAX_LEARNED_REQUESTS:
            self._forget_rare_requests()

    def take_mix(self) -> RequestMix:
        """The current mix, for a forecast; the next forecast is due when enough more requests have come."""
        grown = round(self._arrivals * FORECAST_GROWTH)
        self._next_forecast = max(FIRST_FORECAST, min(grown, self._arrivals + MAX_FORECAST_INTERVAL))
        return RequestMix(dict(self._weights))

    def _forget_rare_requests(self) -> None:
        kept = sorted(self._weights.items(), key=lambda each: -each[1])[:MAX_LEARNED_REQUESTS]
        self._weights = dict(kept)
        self._total = sum(self._weights.values())
