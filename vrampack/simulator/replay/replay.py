"""Places the pods of a snapshot, or given ones, under one configuration, and measures the result.

    bound pods, by creation; then those that wait   --one by one-->  placed, or refused with the scheduler's words
    kept: bound pods stay; those that wait, or a file's  ----------^

The measures are those of the GiB benchmark (`packing/card_benchmark.py`): at the end or, if pods leave again, means over
the second half of the arrivals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from statistics import fmean
from typing import Literal

from extender.settings import ExtenderConfiguration
from vrampack.cards.pod import Pod
from vrampack.simulator.packing.card_benchmark import CardUse, find_median_request, measure_card_use
from vrampack.simulator.replay.cluster_snapshot import ClusterSnapshot, unbind_pod
from vrampack.simulator.replay.given_arrivals import Arrival
from vrampack.simulator.replay.node_changes import ChangedNodes
from vrampack.simulator.replay.replayed_cluster import NoPlace, ReplayedCluster
from vrampack.simulator.resource_kinds import Object

MixKnowledge = Literal["given", "learned"]
SAMPLES = 100
"""For a replay in which pods leave."""

WatchDecision = Callable[[ReplayedCluster, Object, Pod], None]
"""Called with each pod that is about to be placed."""


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What to place, and on which nodes."""

    snapshot: ClusterSnapshot
    arrivals: Sequence[Arrival]
    keeps_bound: bool = False
    """Whether the snapshot's bound pods are on their nodes before the first arrival."""
    mix: MixKnowledge = "given"
    """Whether policies that look ahead know all pods from the start, or only those that have arrived."""


@dataclass(frozen=True, slots=True)
class UnplacedPod:
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReplayMeasures:
    """The result. Pod counts include pods that were kept."""

    pods: int
    placed: int
    asked_units: int
    placed_units: int
    cards: int
    cards_in_use: float
    empty_cards: float
    density: float
    """Used memory of the cards in use, in per cent."""
    stranded_units: float
    """Units free on used cards in pieces smaller than the median request."""
    repack_ratio: float
    """Memory of the cards in use / of those that an offline best-fit-decreasing repack opens."""
    curve: tuple[tuple[float, float], ...] = ()
    """Units asked for and units placed, as pods came."""
    unplaced: tuple[UnplacedPod, ...] = ()


@dataclass(slots=True)
class _Tally:
    pods: int = 0
    placed: int = 0
    asked_units: int = 0
    placed_units: int = 0
    samples: list[tuple[CardUse, int, int]] = field(default_factory=list)
    """Sums for the cards in use, and for all cards."""
    curve: list[tuple[float, float]] = field(default_factory=list)
    unplaced: list[UnplacedPod] = field(default_factory=list)

    def count_pod(self, pod: Pod, *, is_placed: bool) -> None:
        units = count_units(pod)
        self.pods += 1
        self.asked_units += units
        if is_placed:
            self.placed += 1
            self.placed_units += units
        self.curve.append((float(self.asked_units), float(self.placed_units)))

    def sample_cards(self, cluster: ReplayedCluster, median_units: float) -> None:
        cards = cluster.list_card_uses()
        use = measure_card_use(cards, cluster.list_running(), median_units)
        self.samples.append((use, sum(1 for _, used in cards if used), len(cards)))

    def to_measures(self) -> ReplayMeasures:
        in_use, cards = fmean(opened for _, opened, _ in self.samples), self.samples[-1][2]
        step = max(1, len(self.curve) // SAMPLES)
        return ReplayMeasures(
            self.pods,
            self.placed,
            self.asked_units,
            self.placed_units,
            cards,
            in_use,
            cards - in_use,
            fmean(use.density for use, _, _ in self.samples),
            fmean(use.stranded_units for use, _, _ in self.samples),
            fmean(use.repack_ratio for use, _, _ in self.samples),
            tuple(self.curve[::step]),
            tuple(self.unplaced),
        )


def build_plan(
    snapshot: ClusterSnapshot,
    changed: ChangedNodes,
    *,
    keeps_bound: bool,
    given: Sequence[Arrival] | None = None,
    mix: MixKnowledge = "given",
) -> ReplayPlan:
    """Plan to place the snapshot's own pods on these nodes, bound ones before waiting ones, or `given` pods.

    Pods of nodes that are gone or have other cards are never kept, but placed again.
    """
    after = snapshot.replace_nodes(changed.nodes)
    if keeps_bound:
        after = after.displace_pods(changed.exchanged)
    own = after.waiting if keeps_bound else (*snapshot.bound, *snapshot.waiting)
    arrivals = [Arrival(unbind_pod(pod)) for pod in own] if given is None else given
    return ReplayPlan(after, arrivals, keeps_bound, mix)


def replay_arrivals(
    plan: ReplayPlan, settings: ExtenderConfiguration, watch_decision: WatchDecision | None = None
) -> ReplayMeasures:
    """Place all arrivals. Raises `ObjectFileError` for an object that cannot be read."""
    cluster, tally = ReplayedCluster(plan.snapshot, settings), _Tally()
    kept = plan.snapshot.bound if plan.keeps_bound else ()
    median = _find_median(cluster, [*kept, *(each.pod for each in plan.arrivals)])
    for item in kept:
        cluster.hold_pod(item)
        tally.count_pod(cluster.read_pod(item), is_placed=True)
    cluster.learn_requests([*kept, *([each.pod for each in plan.arrivals] if plan.mix == "given" else [])])
    has_departures = any(each.lifetime is not None for each in plan.arrivals)
    first, step = len(plan.arrivals) // 2, max(1, len(plan.arrivals) // (2 * SAMPLES))
    ending: list[tuple[float, int, Object, str]] = []
    for position, arrival in enumerate(plan.arrivals):
        while ending and ending[0][0] <= arrival.at:
            _, _, ended, place = heappop(ending)
            cluster.remove_pod(ended, place)
        if plan.mix == "learned":
            cluster.learn_requests([arrival.pod])
        name = _place_arrival(cluster, arrival.pod, tally, watch_decision)
        if name is not None and arrival.lifetime is not None:
            heappush(ending, (arrival.at + arrival.lifetime, position, arrival.pod, name))
        if has_departures and position >= first and (position - first) % step == 0:
            tally.sample_cards(cluster, median)
    if not tally.samples:
        tally.sample_cards(cluster, median)
    return tally.to_measures()


def measure_as_it_is(snapshot: ClusterSnapshot, settings: ExtenderConfiguration) -> ReplayMeasures:
    """Measure the bound pods where they are, counting waiting pods as not placed."""
    cluster, tally = ReplayedCluster(snapshot, settings), _Tally()
    for item in snapshot.bound:
        cluster.hold_pod(item)
        tally.count_pod(cluster.read_pod(item), is_placed=True)
    for item in snapshot.waiting:
        tally.count_pod(cluster.read_pod(item), is_placed=False)
    tally.sample_cards(cluster, _find_median(cluster, [*snapshot.bound, *snapshot.waiting]))
    return tally.to_measures()


def count_units(pod: Pod) -> int:
    """The units that the pod asks for on all cards together."""
    return 0 if pod.request is None else pod.request.asked_units


def _place_arrival(
    cluster: ReplayedCluster, item: Object, tally: _Tally, watch_decision: WatchDecision | None
) -> str | None:
    pod = cluster.read_pod(item)
    if watch_decision is not None:
        watch_decision(cluster, item, pod)
    name = cluster.place_pod(item, pod)
    tally.count_pod(pod, is_placed=not isinstance(name, NoPlace))
    if isinstance(name, NoPlace):
        tally.unplaced.append(UnplacedPod(str(pod), name.message))
        return None
    return name


def _find_median(cluster: ReplayedCluster, items: Sequence[Object]) -> int:
    """The median of the units that the pods ask for on one card."""
    requests = [pod.request.card_request for item in items if (pod := cluster.read_pod(item)).request is not None]
    return find_median_request(Counter(each.units for each in requests for _ in range(each.count)))
