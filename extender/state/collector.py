"""The ledger's metrics, collected from a snapshot at each scrape; those of each node are in `node_series.py`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.state.ledger import Ledger
from extender.state.node_series import NodeSeries
from extender.state.places import HoldEnd, Reservation
from extender.state.sync import DriftCheck, Freshness
from policies.engine.cluster_shapes import ClusterShapes
from policies.engine.engine import Engine
from policies.engine.fit_index import FitIndexes
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.node import Node
from vrampack.cards.pod import Pod
from vrampack.cards.request import CardRequest

MAX_EVALUATED_SHAPES = 64
"""How many request shapes of pending pods a scrape evaluates, the commonest first, at 1 ms each with 5,000 nodes."""
PODS_PER_SLICE = 5_000
"""Pods between two yields to the event loop: about a millisecond."""


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """The ledger as a scrape found it: immutable values, so that another thread may render them."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    """The pods that wait: unbound and not terminating."""
    reservations: tuple[Reservation, ...]
    node_text: bytes
    """What `NodeSeries` rendered."""
    last_activity_at: Mapping[str, float]
    """Unix seconds by resource."""
    is_synced: bool
    now: float
    """Seconds of the ledger's clock."""
    overdue_seconds: float = 0.0
    """The longest time that a rejected pod has had a place without being activated."""
    cluster: ClusterShapes = field(default_factory=ClusterShapes)
    """Of these nodes or of earlier states of them: a private copy, which its reader brings up to date."""
    held_places: int = 0
    holds_ended: tuple[tuple[HoldEnd, int], ...] = ()


class SnapshotTaker:
    """Copies what the metrics page shows, in several turns of the loop: each copy alone takes milliseconds."""

    def __init__(
        self,
        ledger: Ledger,
        engine: Engine,
        freshness: Freshness,
        drift_check: DriftCheck,
        *,
        clock: Callable[[], float],
        measure_overdue_seconds: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._engine = engine
        self._freshness = freshness
        self._drift_check = drift_check
        self._clock = clock
        self._measure_overdue_seconds = measure_overdue_seconds
        self._node_series = NodeSeries()

    async def take_snapshot(self) -> LedgerSnapshot:
        all_pods, pods = list(self._ledger.list_pods()), []
        for start in range(0, len(all_pods), PODS_PER_SLICE):
            pods += [pod for pod in all_pods[start : start + PODS_PER_SLICE] if _is_pending(pod)]
            await asyncio.sleep(0)
        nodes = tuple(self._ledger.list_nodes())
        await asyncio.sleep(0)
        node_text = await self._node_series.render_text(nodes, self._drift_check.drift_units)
        await asyncio.sleep(0)
        return LedgerSnapshot(
            nodes=nodes,
            pods=tuple(pods),
            reservations=tuple(self._ledger.places.list_reservations()),
            node_text=node_text,
            last_activity_at=dict(self._freshness.last_activity_at),
            is_synced=not self._freshness.find_unready_reason(),
            now=self._clock(),
            overdue_seconds=self._measure_overdue_seconds(),
            cluster=self._engine.copy_cluster(),
            held_places=len(self._ledger.places.list_held_places()),
            holds_ended=tuple(self._ledger.places.holds_ended.items()),
        )


class LedgerCollector(Collector):
    """Metrics of a `LedgerSnapshot`. Nothing is kept between scrapes, so no series outlives its node."""

    def __init__(self, snapshot: LedgerSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        snapshot = self._snapshot
        nodes = [node for node in snapshot.nodes if node.cards]
        oldest = max((snapshot.now - each.made_at for each in snapshot.reservations), default=0.0)
        over = sum(card.is_overcommitted for node in nodes for card in node.cards)
        yield _count_pending_pods(nodes, snapshot.pods, snapshot.cluster)
        yield GaugeMetricFamily(
            "vrampack_reservations", "Places whose Binding the watch has not shown yet.", len(snapshot.reservations)
        )
        yield GaugeMetricFamily(
            "vrampack_held_places", "Places held for pods that may be bound late.", snapshot.held_places
        )
        ended = CounterMetricFamily(
            "vrampack_holds_ended",
            "Holds that ended, by how: bound, filtered (its pod was asked about again), failed, gone, expired.",
            labels=["how"],
        )
        for how, count in snapshot.holds_ended:
            ended.add_metric([how], count)
        yield ended
        yield GaugeMetricFamily("vrampack_reservation_oldest_age_seconds", "Age of the oldest reservation.", oldest)
        yield GaugeMetricFamily("vrampack_overcommitted_cards", "Cards promised beyond their memory; must be 0.", over)
        yield GaugeMetricFamily(
            "vrampack_cache_synced", "1 when the ledger is complete and fresh.", int(snapshot.is_synced)
        )
        yield GaugeMetricFamily(
            "vrampack_activation_overdue_seconds",
            "The longest time that a rejected pod has had a place without being activated for it.",
            snapshot.overdue_seconds,
        )
        legacy = GaugeMetricFamily(
            "vrampack_legacy_node_info",
            "1, for nodes whose cards another plugin advertises as totals.",
            labels=["node"],
        )
        for node in nodes:
            if node.legacy:
                legacy.add_metric([node.name], 1)
        yield legacy
        activity = GaugeMetricFamily(
            "vrampack_watch_last_event_timestamp_seconds",
            "When the last event, bookmark or end of a list came, in Unix seconds.",
            labels=["resource"],
        )
        for resource, at in sorted(snapshot.last_activity_at.items()):
            activity.add_metric([resource], at)
        yield activity


def _count_pending_pods(nodes: list[Node], pods: Iterable[Pod], cluster: ClusterShapes) -> Metric:
    """Why pods wait: `fits` means that it is the scheduler's turn, `fragmented` that some node's total is enough."""
    counts = {"fits": 0, "fragmented": 0, "full": 0, "never": 0, "other": 0}
    asked = Counter(pod.request.card_request for pod in pods if pod.request is not None)
    if asked:
        for reason, count in _PendingReasons(nodes, cluster).count_pods(asked):
            counts[reason] += count
    pending = GaugeMetricFamily(
        "vrampack_pending_pods",
        "Unbound pods by what the ledger says of them: fits, fragmented (a node has enough, no card has), full, never; "
        "other: a shape of too few pods to be evaluated.",
        labels=["reason"],
    )
    for reason, count in counts.items():
        pending.add_metric([reason], count)
    return pending


def _is_pending(pod: Pod) -> bool:
    return not pod.node_name and not pod.is_terminating and pod.request is not None


class _PendingReasons:
    """Finds the reason for a request by the fit classes of all nodes, at the same cost for every request."""

    def __init__(self, nodes: Collection[Node], cluster: ClusterShapes) -> None:
        self._cluster = cluster
        cluster.replace_nodes(nodes)
        self._fits = FitIndexes(cluster)
        self._most_free_units = max((node.free_units for node in nodes), default=0)

    def count_pods(self, asked: Mapping[CardRequest, int]) -> Iterable[tuple[str, int]]:
        """Pairs of a reason and a number of pods; a reason may come several times."""
        shapes: Counter[CardRequest] = Counter()
        for request, count in asked.items():
            shapes[self._cluster.hardware.narrow_request(request)] += count
        for position, (shape, count) in enumerate(shapes.most_common()):
            yield self._find_reason(shape) if position < MAX_EVALUATED_SHAPES else "other", count

    def _find_reason(self, request: CardRequest) -> str:
        classes = set(self._fits.get_classes(request).values())
        reasons = {each.find_obstacle(request.units) for each in classes}
        for name in self._cluster.hardware.list_nodes_with(request.uuids or ()):
            fitting = find_fitting_cards(self._cluster.nodes[name], request)
            reasons.add(fitting.reason if isinstance(fitting, Unfit) else None)
        if None in reasons:
            return "fits"
        if all(reason is not None and reason.is_unresolvable for reason in reasons):
            return "never"
        return "fragmented" if self._most_free_units >= request.units * request.count else "full"
