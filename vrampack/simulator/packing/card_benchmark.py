"""The GiB benchmark: integer requests on cards of mixed sizes, without departures (fill) or with them (churn).

Fill: pods arrive until 1.3 times the cluster's memory has been requested; none leaves. Churn: Poisson arrivals and log-normal
lifetimes (mean 1, sigma 1) at an offered load; a pod that does not fit is lost, and measuring begins after six lifetimes.
Nodes are renamed at random for each seed, because names break ties.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from random import Random
from statistics import fmean

from policies.mix.request_mix import MixedRequest, RequestMix
from vrampack.cards.request import CardRequest
from vrampack.simulator.packing.openb_protocol import rename_nodes
from vrampack.simulator.packing.packed_cluster import PackedCluster, SimulatedNode, SimulatedPod

FILL_LOADS = (1.0, 1.3)
"""A fill is measured when these shares of the cluster's memory have been requested."""
ARRIVALS_PER_CARD = 45
"""Arrivals in a churn: 40,000 on 900 cards, enough for three to thirty lifetimes after the warm-up."""
WARM_UP_LIFETIMES = 6.0
ARRIVALS_PER_SAMPLE = 500

BuildCluster = Callable[[Sequence[SimulatedNode]], PackedCluster]


@dataclass(frozen=True, slots=True)
class CardMeasures:
    """Measures in per cent, except for the last two."""

    placed_gib: float
    """Placed memory, as a share of the requested memory."""
    allocation: float
    """Allocated share of the cluster's memory: mean while measuring."""
    density: float
    """Used share of the memory of the cards in use."""
    stranded: float
    """Memory free on used cards in pieces smaller than the median request, as a share of the cluster's memory."""
    repack_ratio: float
    """Memory of the cards in use / memory of the cards that an offline best-fit-decreasing repack opens."""
    wait: float
    """Mean time from arrival to placement, in thousandths of a mean lifetime. 0 if pods that do not fit are lost."""


@dataclass(frozen=True, slots=True)
class CardUse:
    """The use of all cards at one moment, in units."""

    used_units: int
    open_units: int
    """Units of the cards in use."""
    stranded_units: int
    """Units free on used cards in pieces smaller than the median request."""
    repacked_units: int
    """Units of the cards that an offline best-fit-decreasing repack opens."""

    @property
    def density(self) -> float:
        """Used units, in per cent of the cards in use."""
        return 100 * self.used_units / self.open_units if self.open_units else 100.0

    @property
    def repack_ratio(self) -> float:
        return self.open_units / self.repacked_units if self.repacked_units else 1.0


def measure_card_use(cards: Sequence[tuple[int, int]], running: Sequence[int], median_units: float) -> CardUse:
    """The use of these cards. `cards`: units and used units; `running`: the units of every pod on one card."""
    return CardUse(
        sum(used for _, used in cards),
        sum(units for units, used in cards if used),
        sum(units - used for units, used in cards if used and units - used < median_units),
        repack_requests([units for units, _ in cards], running),
    )


@dataclass(slots=True)
class _Tally:
    total_units: int
    median_units: float
    asked: int = 0
    placed: int = 0
    samples: list[tuple[float, float, float, float]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def sample_cards(self, cluster: PackedCluster, running: Sequence[int]) -> None:
        use = measure_card_use(cluster.list_card_uses(), running, self.median_units)
        self.samples.append(
            (
                100 * use.used_units / self.total_units,
                use.density,
                100 * use.stranded_units / self.total_units,
                use.repack_ratio,
            )
        )

    def to_measures(self) -> CardMeasures:
        allocation, density, stranded, repack_ratio = [fmean(column) for column in zip(*self.samples, strict=True)]
        return CardMeasures(
            100 * self.placed / self.asked if self.asked else 100.0,
            allocation,
            density,
            stranded,
            repack_ratio,
            wait=1000 * fmean(self.waits) if self.waits else 0.0,
        )


def build_mix(weights: Mapping[int, float]) -> RequestMix:
    """The mix that a policy is given."""
    return RequestMix({MixedRequest(CardRequest(units)): weight for units, weight in weights.items()})


def run_fill(
    nodes: Sequence[SimulatedNode], weights: Mapping[int, float], seed: int, build_cluster: BuildCluster
) -> Mapping[float, CardMeasures]:
    """The measures when each of `FILL_LOADS` has been requested."""
    random = Random(seed)  # noqa: S311 - for a simulation
    cluster = build_cluster(rename_nodes(nodes, random))
    tally, sizes, running = _begin_tally(nodes, weights), list(weights), []
    measures: dict[float, CardMeasures] = {}
    for load in FILL_LOADS:
        while tally.asked < load * tally.total_units:
            (units,) = random.choices(sizes, list(weights.values()))
            tally.asked += units
            if cluster.place_pod(f"pod-{tally.asked}", SimulatedPod(CardRequest(units), None)) is not None:
                tally.placed += units
                running.append(units)
        tally.samples.clear()
        tally.sample_cards(cluster, running)
        measures[load] = tally.to_measures()
    return measures


class _Churn:
    """The running and the waiting pods."""

    def __init__(self, cluster: PackedCluster, random: Random, tally: _Tally) -> None:
        self.running: list[int] = []
        """Units, ascending."""
        self.waiting: dict[int, deque[tuple[float, str]]] = {}
        """Arrival and uid of waiting pods by units, first come first."""
        self._cluster = cluster
        self._random = random
        self._tally = tally
        self._ending: list[tuple[float, str, str, SimulatedPod]] = []

    def end_pods(self, now: float) -> None:
        """Remove the pods that have ended by now; after each, try the waiting pods."""
        while self._ending and self._ending[0][0] <= now:
            ended_at, uid, name, pod = heappop(self._ending)
            self._cluster.remove_pod(uid, name, pod)
            del self.running[bisect_left(self.running, pod.units)]
            self._place_waiting(ended_at)

    def place_pod(self, uid: str, units: int, now: float, arrived: float) -> bool:
        pod = SimulatedPod(CardRequest(units), None)
        name = self._cluster.place_pod(uid, pod)
        if name is None:
            return False
        heappush(self._ending, (now + self._random.lognormvariate(-0.5, 1.0), uid, name, pod))
        insort(self.running, units)
        if arrived >= WARM_UP_LIFETIMES:
            self._tally.placed += units
            self._tally.waits.append(now - arrived)
        return True

    def _place_waiting(self, now: float) -> None:
        """Place waiting pods that fit, oldest first: if one size has no room, no larger size has."""
        limit = inf
        while heads := [(queue[0][0], units) for units, queue in self.waiting.items() if queue and units < limit]:
            arrived, units = min(heads)
            if self.place_pod(self.waiting[units][0][1], units, now, arrived):
                self.waiting[units].popleft()
            else:
                limit = units


def run_churn(
    nodes: Sequence[SimulatedNode],
    weights: Mapping[int, float],
    load: float,
    seed: int,
    build_cluster: BuildCluster,
    *,
    has_queue: bool = False,
) -> CardMeasures:
    """The steady state at this load: the mean GiB requested at any time, as a share of the cluster's.

    With a queue a pod that does not fit waits, and its lifetime begins with its placement.
    """
    random = Random(seed)  # noqa: S311 - for a simulation
    cluster = build_cluster(rename_nodes(nodes, random))
    tally, sizes = _begin_tally(nodes, weights), list(weights)
    churn = _Churn(cluster, random, tally)
    mean_units = sum(units * weight for units, weight in weights.items()) / sum(weights.values())
    rate, now = load * tally.total_units / mean_units, 0.0
    cards = sum(len(node.card_units) for node in nodes)
    for arrival in range(ARRIVALS_PER_CARD * cards):
        now += random.expovariate(rate)
        churn.end_pods(now)
        (units,) = random.choices(sizes, list(weights.values()))
        if not churn.place_pod(f"pod-{arrival}", units, now, now) and has_queue:
            churn.waiting.setdefault(units, deque()).append((now, f"pod-{arrival}"))
        if now >= WARM_UP_LIFETIMES:
            tally.asked += units
            if arrival % ARRIVALS_PER_SAMPLE == 0:
                tally.sample_cards(cluster, churn.running)
    return tally.to_measures()


def repack_requests(card_units: Sequence[int], running: Sequence[int]) -> int:
    """Units of the cards that best-fit-decreasing opens for these requests; it opens the smallest card that fits one."""
    closed, free, opened = sorted(card_units), list[int](), 0
    for units in sorted(running, reverse=True):
        at = bisect_left(free, units)
        if at < len(free):
            insort(free, free.pop(at) - units)
            continue
        at = bisect_left(closed, units)
        if at == len(closed):
            continue
        card = closed.pop(at)
        opened += card
        insort(free, card - units)
    return opened


def find_median_request(weights: Mapping[int, float]) -> int:
    """The median request in units, given the weight of each size; 0 without any."""
    half, seen = sum(weights.values()) / 2, 0.0
    for units, weight in sorted(weights.items()):
        seen += weight
        if seen >= half:
            return units
    return 0


def _begin_tally(nodes: Sequence[SimulatedNode], weights: Mapping[int, float]) -> _Tally:
    return _Tally(sum(sum(node.card_units) for node in nodes), find_median_request(weights))
