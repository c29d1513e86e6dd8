"""Every metric of the agent, with its help text. `docs/metrics.md` lists them; a test compares the two.

Labels join with dcgm-exporter's: `UUID` and `gpu` name the card, `namespace`, `pod` and `container` who uses it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from vrampack.cards.node import CardFacts
from vrampack.kube.client import label_code

_BUCKETS = tuple(0.0005 * 2**power for power in range(14))
"""0.5 ms doubling to 4 s."""
_START_BUCKETS = tuple(0.0005 * 2 ** (power / 2) for power in range(28))
"""Two for each of those: slow starts keep pods waiting, so their durations need finer buckets."""
_MIB = 1024 * 1024
CARD_LABELS = ("node", "UUID", "gpu")
CONTAINER_LABELS = (*CARD_LABELS, "namespace", "pod", "container")
PROCESS_LABELS = ("node", "namespace", "pod", "container")


@dataclass(frozen=True, slots=True)
class CardSample:
    """One card now."""

    card: CardFacts
    held_units: int
    used_bytes: int | None
    """None: the driver does not say."""
    sm_percent: int | None = None
    """The same."""


@dataclass(frozen=True, slots=True)
class ContainerSample:
    """One container on one card now."""

    uuid: str
    gpu: int
    namespace: str
    pod: str
    container: str
    limit_bytes: int | None
    used_bytes: int | None
    peak_bytes: int | None = None
    refused: int | None = None
    """For containers whose processes ask before they allocate."""
    sm_percent: int | None = None
    """None: the driver does not say."""


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """Processes of one container that ask before they allocate."""

    namespace: str
    pod: str
    container: str
    processes: int


@dataclass(frozen=True, slots=True)
class AgentSnapshot:
    """What the metrics page shows about cards and containers."""

    cards: tuple[CardSample, ...] = ()
    containers: tuple[ContainerSample, ...] = ()
    processes: tuple[ProcessSample, ...] = ()
    enforcement: str = ""
    is_unenforced: bool = False
    """Limits are not enforced although the settings ask for it."""
    problem: str = ""
    hook_answer_counts: tuple[int, int] = (0, 0)
    """How many containers were allowed, and how many refused."""
    lingering_pods: int = 0


class AgentMetrics:
    """The registry of one agent."""

    def __init__(self, version: str, *, node: str) -> None:
        self._node = node
        self.registry = CollectorRegistry()
        self.allocate_seconds = self._histogram(
            "vrampack_agent_allocate_duration_seconds", "Time of one Allocate, from kubelet's call to the answer."
        )
        self.start_seconds = self._histogram(
            "vrampack_agent_start_duration_seconds",
            "Time of one PreStartContainer, whatever its result.",
            _START_BUCKETS,
        )
        self._start_waits = Counter(
            "vrampack_agent_start_wait_seconds_total",
            "Time that PreStartContainer calls spent waiting for kubelet, the API server or the runtime.",
            ["on"],
            registry=self.registry,
        )
        self.allocate_errors = self._counter(
            "vrampack_agent_allocate_errors_total", "Allocate calls for devices that this node does not have."
        )
        self.starts = Counter(
            "vrampack_agent_starts_total",
            "Containers that were about to start: ok, older (of a previous plugin), or the reason of the refusal.",
            ["result"],
            registry=self.registry,
        )
        self.id_card_mismatch = self._counter(
            "vrampack_agent_id_card_mismatch_total",
            "Containers whose device ids name another card than they have; their environment is right.",
        )
        self.spec_reads = Counter(
            "vrampack_agent_cdi_specs_total",
            "CDI specs written before a start: read, timeout, unwatched, or refused (no runtime here reads any).",
            ["result"],
            registry=self.registry,
        )
        self.spec_read_seconds = self._histogram(
            "vrampack_agent_cdi_read_duration_seconds",
            "Time from writing the specs of a start until the runtime has read them.",
            _START_BUCKETS,
        )
        self._injection = Gauge(
            "vrampack_agent_injection_info",
            "Always 1; the label says how new containers get their cards on this node.",
            ["mode"],
            registry=self.registry,
        )
        self._read_identity = Gauge(
            "vrampack_agent_read_identity_info",
            "Always 1; the label says which identity reads pods and nodes: the node, or the agents' account.",
            ["identity"],
            registry=self.registry,
        )
        self.registrations = self._counter(
            "vrampack_agent_registrations_total", "Registrations with kubelet: one per start of either."
        )
        self.streams_closed = self._counter(
            "vrampack_agent_streams_closed_total",
            "Streams that kubelet closed although it kept running; each led to another registration.",
        )
        self.unfenced_starts = self._counter(
            "vrampack_agent_unfenced_starts_total",
            "Pods that were started while the agent was not registered, found and counted afterwards.",
        )
        self.unguarded_containers = Gauge(
            "vrampack_agent_unguarded_containers",
            "Containers that run with a limit that the hook was never asked to put in force.",
            registry=self.registry,
        )
        self.xid_errors = Counter(
            "vrampack_agent_xid_errors_total",
            "Errors that the driver reported, by card and XID number.",
            ["UUID", "xid"],
            registry=self.registry,
        )
        self.driver_errors = self._counter(
            "vrampack_agent_driver_errors_total", "Checks of the cards that the driver did not answer, or not in time."
        )
        self.node_writes = self._counter(
            "vrampack_agent_node_writes_total", "Writes of this node's object: one per change."
        )
        self.condition_writes = self._counter(
            "vrampack_agent_condition_writes_total",
            "Writes of this node's condition VrampackCardsHealthy: one per change.",
        )
        self._unhealthy_card_pods = Gauge(
            "vrampack_agent_unhealthy_card_pods",
            "Pods that hold units of a card which is unhealthy.",
            CARD_LABELS,
            registry=self.registry,
        )
        self.usage_lease_writes = Counter(
            "vrampack_agent_usage_lease_writes_total",
            "Writes of the Lease with the measured use of the cards: ok or failed; at most one a minute.",
            ["result"],
            registry=self.registry,
        )
        self.events_dropped = Counter(
            "vrampack_agent_events_dropped_total",
            "Events that were not written: repeated, rate or failed.",
            ["cause"],
            registry=self.registry,
        )
        self.api_requests = Counter(
            "vrampack_agent_apiserver_requests_total",
            "Finished calls to the API server; code 0 is no answer, foreign an answer of another server.",
            ["verb", "resource", "code"],
            registry=self.registry,
        )
        self.credential_failures = self._counter(
            "vrampack_agent_credential_failures_total",
            "Failures to read the token for the API server again; the last one stays in use.",
        )
        Gauge(
            "vrampack_agent_build_info", "Always 1; the version is the label.", ["version"], registry=self.registry
        ).labels(version).set(1)

    def register_snapshot(self, take_snapshot: Callable[[], AgentSnapshot]) -> None:
        """Let each page show what `take_snapshot` returns at that moment."""
        self.registry.register(_SnapshotCollector(take_snapshot, self._node))

    def render_page(self) -> bytes:
        return generate_latest(self.registry)

    def show_injection(self, mode: str) -> None:
        """Set the mode of new containers from now on."""
        self._injection.clear()
        self._injection.labels(mode).set(1)

    def set_read_identity(self, identity: str) -> None:
        """Set the identity that reads pods and nodes from now on."""
        self._read_identity.clear()
        self._read_identity.labels(identity).set(1)

    def show_unhealthy_card_pods(self, counts: Mapping[CardFacts, int]) -> None:
        """Set how many pods are on each card that is unhealthy now."""
        self._unhealthy_card_pods.clear()
        for card, count in counts.items():
            self._unhealthy_card_pods.labels(self._node, card.uuid or "", str(card.index)).set(count)

    def count_dropped_event(self, cause: str) -> None:
        self.events_dropped.labels(cause).inc()

    def observe_call(self, *, verb: str, resource: str, code: int, seconds: float) -> None:  # noqa: ARG002 - the observer's shape
        self.api_requests.labels(verb, resource, label_code(code)).inc()

    @contextmanager
    def time_start_wait(self, on: Literal["kubelet", "api_server", "runtime"]) -> Iterator[None]:
        """Time what a start waits for inside the block."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._start_waits.labels(on).inc(time.monotonic() - started)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float] = _BUCKETS) -> Histogram:
        return Histogram(name, text, buckets=buckets, registry=self.registry)


class _SnapshotCollector(Collector):
    """Series of cards and containers, built for each page, so series of what is gone disappear."""

    def __init__(self, take_snapshot: Callable[[], AgentSnapshot], node: str) -> None:
        self._take_snapshot = take_snapshot
        self._node = node

    def describe(self) -> Iterable[Metric]:
        return _build_families(AgentSnapshot(), self._node)

    def collect(self) -> Iterable[Metric]:
        return _build_families(self._take_snapshot(), self._node)


def _build_families(snapshot: AgentSnapshot, node: str) -> Iterable[Metric]:
    yield from _card_families(snapshot, node)
    yield from _container_families(snapshot, node)
    enforcement = GaugeMetricFamily(
        "vrampack_agent_enforcement_info",
        "Always 1; the label says what enforces limits on this node.",
        labels=["mode"],
    )
    if snapshot.enforcement:
        enforcement.add_metric([snapshot.enforcement], 1)
    yield enforcement
    unheld = GaugeMetricFamily(
        "vrampack_agent_limits_unheld",
        "1 when no back end enforces limits here although the settings leave the choice to the agent.",
    )
    unheld.add_metric([], int(snapshot.is_unenforced))
    yield unheld
    answers = CounterMetricFamily(
        "vrampack_agent_hook_answers",
        "Containers that the runtime's createRuntime hook asked about: ok or refused.",
        labels=["result"],
    )
    for result, count in zip(("ok", "refused"), snapshot.hook_answer_counts, strict=True):
        answers.add_metric([result], count)
    yield answers
    offered = GaugeMetricFamily(
        "vrampack_agent_offered", "1 when this node's cards are offered, 0 when something keeps them back."
    )
    offered.add_metric([], 0 if snapshot.problem else 1)
    yield offered
    lingering = GaugeMetricFamily(
        "vrampack_agent_lingering_pods",
        "Pods that hold cards although the API server no longer has them: their cgroup still exists on the node.",
    )
    lingering.add_metric([], snapshot.lingering_pods)
    yield lingering


def _container_families(snapshot: AgentSnapshot, node: str) -> Iterable[Metric]:
    used = GaugeMetricFamily(
        "vrampack_agent_container_memory_used_bytes",
        "GPU memory that a container uses on a card.",
        labels=CONTAINER_LABELS,
    )
    limit = GaugeMetricFamily(
        "vrampack_agent_container_memory_limit_bytes",
        "GPU memory that a container may use on a card.",
        labels=CONTAINER_LABELS,
    )
    peak = GaugeMetricFamily(
        "vrampack_agent_container_memory_peak_bytes",
        "The most that a container used on a card: as counted (kmod, preload), or the highest of the measurements.",
        labels=CONTAINER_LABELS,
    )
    refused = CounterMetricFamily(
        "vrampack_agent_container_refused_allocations",
        "Allocations beyond the limit that a container was refused on a card; only with kmod and preload.",
        labels=CONTAINER_LABELS,
    )
    busy = GaugeMetricFamily(
        "vrampack_agent_container_sm_utilization_ratio",
        "How busy a container keeps a card's multiprocessors, 0 to 1, as the driver sampled it; not of MIG instances.",
        labels=CONTAINER_LABELS,
    )
    families: tuple[GaugeMetricFamily | CounterMetricFamily, ...] = (used, limit, peak, refused, busy)
    for each in snapshot.containers:
        labels = [node, each.uuid, str(each.gpu), each.namespace, each.pod, each.container]
        ratio = None if each.sm_percent is None else each.sm_percent / 100
        values = (each.used_bytes, each.limit_bytes, each.peak_bytes, each.refused, ratio)
        for family, value in zip(families, values, strict=True):
            if value is not None:
                family.add_metric(labels, value)
    processes = GaugeMetricFamily(
        "vrampack_agent_container_processes",
        "Processes of a container that ask the agent before they allocate (preload), or hold memory (kmod).",
        labels=PROCESS_LABELS,
    )
    for group in snapshot.processes:
        processes.add_metric([node, group.namespace, group.pod, group.container], group.processes)
    yield from (*families, processes)


def _card_families(snapshot: AgentSnapshot, node: str) -> Iterable[Metric]:
    info = GaugeMetricFamily(
        "vrampack_agent_card_info",
        "Always 1; model and parent are labels.",
        labels=[*CARD_LABELS, "model", "mig_parent"],
    )
    total = GaugeMetricFamily("vrampack_agent_card_memory_bytes", "Total memory of a card.", labels=CARD_LABELS)
    used = GaugeMetricFamily(
        "vrampack_agent_card_memory_used_bytes", "Memory in use on a card, by any process.", labels=CARD_LABELS
    )
    units = GaugeMetricFamily("vrampack_agent_card_units", "Units that a card has.", labels=CARD_LABELS)
    held = GaugeMetricFamily(
        "vrampack_agent_card_held_units", "Units of a card held by pods that may start.", labels=CARD_LABELS
    )
    healthy = GaugeMetricFamily("vrampack_agent_card_healthy", "1 for a healthy card, else 0.", labels=CARD_LABELS)
    busy = GaugeMetricFamily(
        "vrampack_agent_card_sm_utilization_ratio",
        "How busy processes keep a card's multiprocessors, 0 to 1, as the driver sampled it; not of MIG instances.",
        labels=CARD_LABELS,
    )
    for each in snapshot.cards:
        card = each.card
        labels = [node, card.uuid or "", str(card.index)]
        info.add_metric([*labels, card.model, card.mig_parent or ""], 1)
        total.add_metric(labels, card.memory_mib * _MIB)
        units.add_metric(labels, card.units)
        held.add_metric(labels, each.held_units)
        healthy.add_metric(labels, int(card.healthy))
        if each.used_bytes is not None:
            used.add_metric(labels, each.used_bytes)
        if each.sm_percent is not None:
            busy.add_metric(labels, each.sm_percent / 100)
    yield from (info, total, used, units, held, healthy, busy)
