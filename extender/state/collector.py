"""The ledger's metrics, collected from a snapshot at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.state.ledger import Ledger
from extender.state.reservations import Reservation
from extender.state.sync import DriftCheck, Freshness
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.node import Node
from vrampack.cards.pod import Pod
from vrampack.cards.request import CardRequest

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """The ledger at one moment: values that never change, so that another thread may render them."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    reservations: tuple[Reservation, ...]
    drift_units: Mapping[str, int]
    last_activity_at: Mapping[str, float]
    """Unix seconds by resource."""
    is_synced: bool
    now: float
    """Seconds of the ledger's clock."""


class SnapshotTaker:
    """Copies what the metrics page shows."""

    def __init__(
        self, ledger: Ledger, freshness: Freshness, drift_check: DriftCheck, *, clock: Callable[[], float]
    ) -> None:
        self._ledger = ledger
        self._freshness = freshness
        self._drift_check = drift_check
        self._clock = clock

    def take_snapshot(self) -> LedgerSnapshot:
        return LedgerSnapshot(
            nodes=tuple(self._ledger.list_nodes()),
            pods=tuple(self._ledger.list_pods()),
            reservations=tuple(self._ledger.list_reservations()),
            drift_units=dict(self._drift_check.drift_units),
            last_activity_at=dict(self._freshness.last_activity_at),
            is_synced=not self._freshness.find_unready_reason(),
            now=self._clock(),
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
        yield from _build_node_metrics(nodes, snapshot.drift_units)
        yield _count_pending_pods(nodes, snapshot.pods)
        yield GaugeMetricFamily(
            "vrampack_reservations", "Places whose Binding is not yet seen.", len(snapshot.reservations)
        )
        yield GaugeMetricFamily("vrampack_reservation_oldest_age_seconds", "Age of the oldest of them.", oldest)
        yield GaugeMetricFamily("vrampack_overcommitted_cards", "Cards that hold more than they have; must be 0.", over)
        yield GaugeMetricFamily(
            "vrampack_cache_synced", "1 when the ledger is complete and fresh.", int(snapshot.is_synced)
        )
        activity = GaugeMetricFamily(
            "vrampack_watch_last_event_timestamp_seconds",
            "When the last event, bookmark or end of a list came.",
            labels=["resource"],
        )
        for resource, at in sorted(snapshot.last_activity_at.items()):
            activity.add_metric([resource], at)
        yield activity


def _count_pending_pods(nodes: list[Node], pods: Iterable[Pod]) -> Metric:
    """Why pods wait: `fits` is the scheduler's turn, `fragmented` that a node's sum would do."""
    counts = {"fits": 0, "fragmented": 0, "full": 0, "never": 0}
    verdicts: dict[CardRequest, str] = {}
    for pod in pods:
        if pod.request is not None and not pod.node_name and not pod.is_terminating:
            request = pod.request.card_request
            if request not in verdicts:
                verdicts[request] = _find_pending_reason(nodes, request)
            counts[verdicts[request]] += 1
    pending = GaugeMetricFamily(
        "vrampack_pending_pods",
        "Unbound pods by what the ledger says of them: fits, fragmented (a node has enough, no card has), full, never.",
        labels=["reason"],
    )
    for reason, count in counts.items():
        pending.add_metric([reason], count)
    return pending


def _find_pending_reason(nodes: list[Node], request: CardRequest) -> str:
    answers = [find_fitting_cards(node, request) for node in nodes]
    if any(not isinstance(answer, Unfit) for answer in answers):
        return "fits"
    if all(isinstance(answer, Unfit) and answer.reason.is_unresolvable for answer in answers):
        return "never"
    return "fragmented" if any(node.free_units >= request.units * request.count for node in nodes) else "full"


def _build_node_metrics(nodes: list[Node], drift_units: Mapping[str, int]) -> Iterable[Metric]:
    capacity = GaugeMetricFamily(
        "vrampack_node_memory_capacity_bytes", "GPU memory of the node's cards.", labels=["node"]
    )
    allocated = GaugeMetricFamily("vrampack_node_memory_allocated_bytes", "GPU memory held by pods.", labels=["node"])
    fragmented = GaugeMetricFamily(
        "vrampack_fragmented_free_bytes", "Free GPU memory of the node that is not on its freest card.", labels=["node"]
    )
    drift = GaugeMetricFamily(
        "vrampack_ledger_drift_bytes", "Difference between the ledger and a fresh count; must be 0.", labels=["node"]
    )
    for node in nodes:
        unit_bytes = node.unit_mib * _MIB
        capacity.add_metric([node.name], sum(card.memory_mib for card in node.cards) * _MIB)
        allocated.add_metric([node.name], node.used_units * unit_bytes)
        fragmented.add_metric([node.name], (node.free_units - node.largest_free_units) * unit_bytes)
        drift.add_metric([node.name], drift_units.get(node.name, 0) * unit_bytes)
    yield from (capacity, allocated, fragmented, drift)
