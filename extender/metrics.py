"""Every metric of the extender, with its help text. `docs/metrics.md` lists them; a test compares the two.

No label holds a pod, a card or a uid: series would never end. Card and container series are the agent's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.ledger import Reservation
from vrampack.cards.fit import Unfit, UnfitReason, find_fitting_cards
from vrampack.cards.node import Node
from vrampack.cards.pod import Pod
from vrampack.cards.request import CardRequest

BIND_RESULTS = (
    "ok",
    "conflict",
    "no_capacity",
    "pod_gone",
    "uid_mismatch",
    "node_gone",
    "refused",
    "api_error",
    "deadline",
    "unready",
    "malformed",
)
PREEMPT_RESULTS = ("ok", "added", "no", "unready", "malformed")
VERBS = ("filter", "prioritize", "bind", "preempt")
ACTIVATION_RESULTS = ("bound", "refused", "expired", "gone", "failed")
_BUCKETS = tuple(0.0005 * 2**power for power in range(14))
"""0.5 ms doubling to 4 s."""
_MIB = 1024 * 1024


class ExtenderMetrics:
    """The registry of one service."""

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        self.request_seconds = Histogram(
            "vrampack_extender_request_duration_seconds",
            "Time from a verb's last byte received to its answer, by result: ok, no (nothing fits), error.",
            ["verb", "result"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.requests_in_flight = Gauge(
            "vrampack_extender_requests_in_flight", "Verb calls being answered now.", ["verb"], registry=self.registry
        )
        self.rejected_nodes = Counter(
            "vrampack_extender_rejected_nodes_total",
            "Nodes refused by filter, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self.binds = Counter(
            "vrampack_bind_total", "Bind calls answered, by result.", ["result"], registry=self.registry
        )
        self.bind_conflicts = Counter(
            "vrampack_bind_conflicts_total",
            "Binds refused because the place that filter found was taken.",
            registry=self.registry,
        )
        self.preemptions = Counter(
            "vrampack_preempt_total",
            "Preempt calls answered, by result: ok (victims as proposed), added (more of them), no (no node), or an error.",
            ["result"],
            registry=self.registry,
        )
        self.activations = Counter(
            "vrampack_pod_activations_total",
            "Waiting pods woken because room for them appeared, by what came of it.",
            ["result"],
            registry=self.registry,
        )
        self.bound_after_flush = Counter(
            "vrampack_bound_after_flush_total",
            "Refused pods let in more than 290 s after there was room for them, without an activation; must be 0.",
            registry=self.registry,
        )
        self.annotation_violations = Counter(
            "vrampack_annotation_violations_total",
            "Annotations that could not be read or contradict each other, and objects that could not be decoded, by kind.",
            ["kind"],
            registry=self.registry,
        )
        self.api_requests = Counter(
            "vrampack_apiserver_requests_total",
            "Calls to the API server; code 0 means no answer.",
            ["verb", "resource", "code"],
            registry=self.registry,
        )
        self.api_seconds = Histogram(
            "vrampack_apiserver_request_duration_seconds",
            "Time of calls to the API server, watches left out.",
            ["verb", "resource"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.relists = Counter(
            "vrampack_relists_total", "Full lists begun, by cause.", ["resource", "reason"], registry=self.registry
        )
        self.events_dropped = Counter(
            "vrampack_events_dropped_total",
            "Events not written, by cause: repeated, rate, failed.",
            ["cause"],
            registry=self.registry,
        )
        self.scheduler_config_findings = Gauge(
            "vrampack_scheduler_config_findings",
            "What is amiss in the scheduler's configuration as it was read at the start; -1 when it was not checked.",
            registry=self.registry,
        )
        self.device_class_conflicts = Gauge(
            "vrampack_device_class_conflicts",
            "Device classes that claim the resource that is ours, must be 0; -1 as long as that is not known.",
            registry=self.registry,
        )
        for gauge in (self.scheduler_config_findings, self.device_class_conflicts):
            gauge.set(-1)
        self.config_generation = Gauge(
            "vrampack_config_generation",
            "1 at the start, one more for each change of the configuration file that took effect.",
            registry=self.registry,
        )
        self.config_generation.set(1)
        self.config_reload_failures = Counter(
            "vrampack_config_reload_failures_total",
            "Changes of the configuration file that could not be read; what was in force stayed.",
            registry=self.registry,
        )
        self.admission_seconds = Histogram(
            "vrampack_admission_request_duration_seconds",
            "Time of a call of the admission webhook, by result: changed, unchanged, refused, malformed, error.",
            ["result"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.certificate_expiry = Gauge(
            "vrampack_admission_certificate_expiry_timestamp_seconds",
            "When the certificate that the admission webhook shows ends; 0 without that listener.",
            registry=self.registry,
        )
        self.certificate_failures = Counter(
            "vrampack_admission_certificate_reload_failures_total",
            "Changes of the certificate's files that could not be used; what was shown stayed.",
            registry=self.registry,
        )
        Gauge("vrampack_build_info", "1, with the version.", ["version"], registry=self.registry).labels(version).set(1)
        for verb in VERBS:
            self.requests_in_flight.labels(verb)
        for reason in UnfitReason:
            self.rejected_nodes.labels(reason.value)
        for result in ACTIVATION_RESULTS:
            self.activations.labels(result)
        for result in BIND_RESULTS:
            self.binds.labels(result)
        for result in PREEMPT_RESULTS:
            self.preemptions.labels(result)

    def observe_call(self, *, verb: str, resource: str, code: int, seconds: float) -> None:
        """A finished call to the API server; a `vrampack.kube.client.CallObserver`."""
        self.api_requests.labels(verb, resource, str(code)).inc()
        if verb != "watch":
            self.api_seconds.labels(verb, resource).observe(seconds)

    def render_page(self, snapshot: LedgerSnapshot) -> bytes:
        """The text of /metrics. Touches nothing that changes: call it in a thread, it may take 100 ms."""
        state = CollectorRegistry()
        state.register(_LedgerCollector(snapshot))
        return generate_latest(self.registry) + generate_latest(state)


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


class _LedgerCollector(Collector):
    """Renders a `View`. Nothing is kept between scrapes, so no series outlives its node."""

    def __init__(self, snapshot: LedgerSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        view = self._snapshot
        nodes = [node for node in view.nodes if node.cards]
        oldest = max((view.now - each.made_at for each in view.reservations), default=0.0)
        over = sum(card.is_overcommitted for node in nodes for card in node.cards)
        yield from _build_node_metrics(nodes, view.drift_units)
        yield _count_pending_pods(nodes, view.pods)
        yield GaugeMetricFamily(
            "vrampack_reservations", "Places whose Binding is not yet seen.", len(view.reservations)
        )
        yield GaugeMetricFamily("vrampack_reservation_oldest_age_seconds", "Age of the oldest of them.", oldest)
        yield GaugeMetricFamily("vrampack_overcommitted_cards", "Cards that hold more than they have; must be 0.", over)
        yield GaugeMetricFamily(
            "vrampack_cache_synced", "1 when the ledger is complete and fresh.", int(view.is_synced)
        )
        heard = GaugeMetricFamily(
            "vrampack_watch_last_event_timestamp_seconds", "When the API server last spoke.", labels=["resource"]
        )
        for resource, at in sorted(view.last_activity_at.items()):
            heard.add_metric([resource], at)
        yield heard


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
