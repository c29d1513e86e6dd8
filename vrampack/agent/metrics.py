"""Every metric of the agent, with its help text. `docs/metrics.md` lists them; a test compares the two.

Labels join with dcgm-exporter's: `UUID` and `gpu` name the card, `namespace`, `pod` and `container` who uses it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from vrampack.cards.node import CardFacts
from vrampack.cards.units import MIB
from vrampack.http.metric_registry import MetricRegistry
from vrampack.kube.api_caller import label_code

_START_BUCKETS = tuple(0.0005 * 2 ** (power / 2) for power in range(28))
"""Two for each of those: slow starts keep pods waiting, so their durations need finer buckets."""
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
        self.registry = registry = MetricRegistry()
        self.allocate_seconds = registry.add_histogram(
            "vrampack_agent_allocate_duration_seconds", "Time of one Allocate, from kubelet's call to the answer."
        )
        self.start_seconds = registry.add_histogram(
            "vrampack_agent_start_duration_seconds",
            "Time of one PreStartContainer, whatever its result.",
            buckets=_START_BUCKETS,
        )
        self._start_waits = registry.add_counter(
            "vrampack_agent_start_wait_seconds_total",
            "Time that PreStartContainer calls spent waiting for kubelet, the API server or the runtime.",
            ["on"],
        )
        self.allocate_errors = registry.add_counter(
            "vrampack_agent_allocate_errors_total", "Allocate calls for devices that this node does not have."
        )
        self.starts = registry.add_counter(
            "vrampack_agent_starts_total",
            "Containers that were about to start: ok, older (of a previous plugin), or the reason of the refusal.",
            ["result"],
        )
        self.id_card_mismatch = registry.add_counter(
            "vrampack_agent_id_card_mismatch_total",
            "Containers whose device ids name another card than they have; their environment is right.",
        )
        self.spec_reads = registry.add_counter(
            "vrampack_agent_cdi_specs_total",
            "CDI specs written before a start: read, timeout, unwatched, or refused (no runtime here reads any).",
            ["result"],
        )
        self.spec_read_seconds = registry.add_histogram(
            "vrampack_agent_cdi_read_duration_seconds",
            "Time from writing the specs of a start until the runtime has read them.",
            buckets=_START_BUCKETS,
        )
        self._injection = registry.add_gauge(
            "vrampack_agent_injection_info",
            "Always 1; the label says how new containers get their cards on this node.",
            ["mode"],
        )
        self._read_identity = registry.add_gauge(
            "vrampack_agent_read_identity_info",
            "Always 1; the label says which identity reads pods and nodes: the node, or the agents' account.",
            ["identity"],
        )
        self.registrations = registry.add_counter(
            "vrampack_agent_registrations_total", "Registrations with kubelet: one per start of either."
        )
        self.streams_closed = registry.add_counter(
            "vrampack_agent_streams_closed_total",
            "Streams that kubelet closed although it kept running; each led to another registration.",
        )
        self.unfenced_starts = registry.add_counter(
            "vrampack_agent_unfenced_starts_total",
            "Pods that were started while the agent was not registered, found and counted afterwards.",
        )
        self.unguarded_containers = registry.add_gauge(
            "vrampack_agent_unguarded_containers",
            "Containers that run with a limit that the hook was never asked to put in force.",
        )
        self.xid_errors = registry.add_counter(
            "vrampack_agent_xid_errors_total",
            "Errors that the driver reported, by card and XID number.",
            ["UUID", "xid"],
        )
        self.driver_errors = registry.add_counter(
            "vrampack_agent_driver_errors_total", "Checks of the cards that the driver did not answer, or not in time."
        )
        self.node_writes = registry.add_counter(
            "vrampack_agent_node_writes_total", "Writes of this node's object: one per change."
        )
        self.condition_writes = registry.add_counter(
            "vrampack_agent_condition_writes_total",
            "Writes of this node's condition VrampackCardsHealthy: one per change.",
        )
        self._unhealthy_card_pods = registry.add_gauge(
            "vrampack_agent_unhealthy_card_pods", "Pods that hold units of a card which is unhealthy.", CARD_LABELS
        )
        self.usage_lease_writes = registry.add_counter(
            "vrampack_agent_usage_lease_writes_total",
            "Writes of the Lease with the measured use of the cards: ok or failed; at most one a minute.",
            ["result"],
        )
        self.events_dropped = registry.add_counter(
            "vrampack_agent_events_dropped_total", "Events that were not written: repeated, rate or failed.", ["cause"]
        )
        self.api_requests = registry.add_counter(
            "vrampack_agent_apiserver_requests_total",
            "Finished calls to the API server; code 0 is no answer, foreign an answer of another server.",
            ["verb", "resource", "code"],
        )
        self.credential_failures = registry.add_counter(
            "vrampack_agent_credential_failures_total",
            "Failures to read the token for the API server again; the last one stays in use.",
        )
        build = registry.add_gauge("vrampack_agent_build_info", "Always 1; the version is the label.", ["version"])
        build.labels(version).set(1)

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
            self._unhealthy_card_pods.labels(*_label_card(self._node, card)).set(count)

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
    yield from _card_families(snapshot.cards, node)
    yield from _container_families(snapshot, node)
    enforcement = GaugeMetricFamily(
        "vrampack_agent_enforcement_info",
        "Always 1; the label says what enforces limits on this node.",
        labels=["mode"],
    )
    if snapshot.enforcement:
        enforcement.add_metric([snapshot.enforcement], 1)
    yield enforcement
    yield GaugeMetricFamily(
        "vrampack_agent_limits_unheld",
        "1 when no back end enforces limits here although the settings leave the choice to the agent.",
        int(snapshot.is_unenforced),
    )
    answers = CounterMetricFamily(
        "vrampack_agent_hook_answers",
        "Containers that the runtime's createRuntime hook asked about: ok or refused.",
        labels=["result"],
    )
    for result, count in zip(("ok", "refused"), snapshot.hook_answer_counts, strict=True):
        answers.add_metric([result], count)
    yield answers
    yield GaugeMetricFamily(
        "vrampack_agent_offered",
        "1 when this node's cards are offered, 0 when something keeps them back.",
        0 if snapshot.problem else 1,
    )
    yield GaugeMetricFamily(
        "vrampack_agent_lingering_pods",
        "Pods that hold cards although the API server no longer has them: their cgroup still exists on the node.",
        snapshot.lingering_pods,
    )


_CONTAINER_SERIES: tuple[tuple[str, str, Callable[[ContainerSample], float | None]], ...] = (
    (
        "vrampack_agent_container_memory_used_bytes",
        "GPU memory that a container uses on a card.",
        lambda each: each.used_bytes,
    ),
    (
        "vrampack_agent_container_memory_limit_bytes",
        "GPU memory that a container may use on a card.",
        lambda each: each.limit_bytes,
    ),
    (
        "vrampack_agent_container_memory_peak_bytes",
        "The most that a container used on a card: as counted (kmod, preload), or the highest of the measurements.",
        lambda each: each.peak_bytes,
    ),
    (
        "vrampack_agent_container_refused_allocations_total",
        "Allocations beyond the limit that a container was refused on a card; only with kmod and preload.",
        lambda each: each.refused,
    ),
    (
        "vrampack_agent_container_sm_utilization_ratio",
        "How busy a container keeps a card's multiprocessors, 0 to 1, as the driver sampled it; not of MIG instances.",
        lambda each: None if each.sm_percent is None else each.sm_percent / 100,
    ),
)
"""Name, help text and value of each series of a container; None: it has no such series now."""


def _container_families(snapshot: AgentSnapshot, node: str) -> Iterable[Metric]:
    for name, text, read_value in _CONTAINER_SERIES:
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family = kind(name, text, labels=CONTAINER_LABELS)
        for each in snapshot.containers:
            if (value := read_value(each)) is not None:
                family.add_metric([node, each.uuid, str(each.gpu), each.namespace, each.pod, each.container], value)
        yield family
    processes = GaugeMetricFamily(
        "vrampack_agent_container_processes",
        "Processes of a container that ask the agent before they allocate (preload), or hold memory (kmod).",
        labels=PROCESS_LABELS,
    )
    for group in snapshot.processes:
        processes.add_metric([node, group.namespace, group.pod, group.container], group.processes)
    yield processes


_CARD_SERIES: tuple[tuple[str, str, Callable[[CardSample], float | None]], ...] = (
    ("vrampack_agent_card_memory_bytes", "Total memory of a card.", lambda each: each.card.memory_mib * MIB),
    (
        "vrampack_agent_card_memory_used_bytes",
        "Memory in use on a card, by any process.",
        lambda each: each.used_bytes,
    ),
    ("vrampack_agent_card_units", "Units that a card has.", lambda each: each.card.units),
    (
        "vrampack_agent_card_held_units",
        "Units of a card held by pods that may start.",
        lambda each: each.held_units,
    ),
    ("vrampack_agent_card_healthy", "1 for a healthy card, else 0.", lambda each: int(each.card.healthy)),
    (
        "vrampack_agent_card_sm_utilization_ratio",
        "How busy processes keep a card's multiprocessors, 0 to 1, as the driver sampled it; not of MIG instances.",
        lambda each: None if each.sm_percent is None else each.sm_percent / 100,
    ),
)
"""The same for each series of a card."""


def _card_families(cards: Iterable[CardSample], node: str) -> Iterable[Metric]:
    info = GaugeMetricFamily(
        "vrampack_agent_card_info",
        "Always 1; model and parent are labels.",
        labels=[*CARD_LABELS, "model", "mig_parent"],
    )
    for each in cards:
        info.add_metric([*_label_card(node, each.card), each.card.model, each.card.mig_parent or ""], 1)
    yield info
    for name, text, read_value in _CARD_SERIES:
        family = GaugeMetricFamily(name, text, labels=CARD_LABELS)
        for each in cards:
            if (value := read_value(each)) is not None:
                family.add_metric(_label_card(node, each.card), value)
        yield family


def _label_card(node: str, card: CardFacts) -> list[str]:
    return [node, card.uuid or "", str(card.index)]
