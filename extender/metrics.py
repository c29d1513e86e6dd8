"""Every metric of the extender and of the admission webhook, with its help text. `docs/metrics.md` lists them; a test compares the two.

No label names a pod, a card or a uid: the number of series would grow without bound. The agent has the series of cards and containers.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.registry import Collector

from vrampack.cards.reasons import UnfitReason
from vrampack.kube.client import FOREIGN_CODE, label_code

BIND_RESULTS = (
    "ok",
    "conflict",
    "no_capacity",
    "pod_gone",
    "uid_mismatch",
    "node_gone",
    "refused",
    "forbidden",
    "not_written",
    "api_error",
    "deadline",
    "unready",
    "malformed",
)
PREEMPT_RESULTS = ("ok", "added", "no", "unready", "malformed")
VERBS = ("filter", "prioritize", "bind", "preempt")
CALLS_ANSWERED_BY_OTHERS = (
    ("list", "pods"),
    ("list", "nodes"),
    ("watch", "pods"),
    ("watch", "nodes"),
    ("get", "pods"),
    ("create", "pods/binding"),
    ("patch", "pods/status"),
)
"""Verb and resource of the calls that something between us and the API server is most likely to answer."""
TASKS = ("follower", "mix", "activator", "shadow", "reload")
"""What begins again after a fault."""
EVICTION_RESULTS = ("evicted", "kept", "budget", "gone", "failed")
ACTIVATION_RESULTS = ("bound", "refused", "expired", "gone", "failed")
CONFIG_REASONS = ("rejected", "restart")
_BUCKETS = tuple(0.0005 * 2**power for power in range(14))
"""0.5 ms doubling to 4 s."""


class CertificateMetrics:
    """For the TLS listeners of one process; the other listeners have no series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.expiry = Gauge(
            "vrampack_certificate_expiry_seconds",
            "When the listener's certificate expires, in Unix seconds.",
            ["listener"],
            registry=registry,
        )
        self.reload_failures = Counter(
            "vrampack_certificate_reload_failures_total",
            "Changes of the listener's TLS files that could not be used; the previous files stay in force.",
            ["listener"],
            registry=registry,
        )


class AdmissionMetrics:
    """The registry of one admission webhook."""

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        self.request_seconds = Histogram(
            "vrampack_admission_request_duration_seconds",
            "Time of a call of the admission webhook, by result: changed, unchanged, refused, malformed, error.",
            ["result"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.certificates = CertificateMetrics(self.registry)
        _add_build_info(self.registry, version)

    def render_page(self) -> bytes:
        """The text of /metrics."""
        return generate_latest(self.registry)


class ExtenderMetrics:
    """The registry of one extender."""

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
            "Binds refused because the place that filter found had been taken.",
            registry=self.registry,
        )
        self.stale_bindings = Counter(
            "vrampack_stale_bindings_total",
            "Bindings refused because the pod had changed since the watch showed it, and tried once more.",
            registry=self.registry,
        )
        self.second_extender = Counter(
            "vrampack_second_extender_total",
            "Times that this extender and another one bound pods in turns, four turns within 45 s; must be 0.",
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
            "Waiting pods activated because room for them appeared, by outcome.",
            ["result"],
            registry=self.registry,
        )
        self.evictions = Counter(
            "vrampack_evictions_total",
            "Pods that the agents of their nodes refuse, by outcome of evicting them: evicted, kept (no controller), budget, gone, failed.",
            ["result"],
            registry=self.registry,
        )
        self.bound_after_flush = Counter(
            "vrampack_bound_after_flush_total",
            "Rejected pods that pass filter more than 290 s after there was room for them, without an activation; must be 0.",
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
            "Calls to the API server; code 0 means no answer, foreign that another server answered.",
            ["verb", "resource", "code"],
            registry=self.registry,
        )
        _start_at_zero(self.api_requests, [(*call, label_code(FOREIGN_CODE)) for call in CALLS_ANSWERED_BY_OTHERS])
        self.api_denied = Gauge(
            "vrampack_apiserver_denied",
            "1 while the API server answers calls about pods with 401 or 403 only, and says that the account lacks the right.",
            registry=self.registry,
        )
        self.internal_errors = Counter(
            "vrampack_internal_errors_total",
            "Faults of vrampack in a verb or a task, after which its caches are built again from the ledger.",
            ["during"],
            registry=self.registry,
        )
        _start_at_zero(self.internal_errors, [(during,) for during in (*VERBS, *TASKS)])
        self.api_seconds = Histogram(
            "vrampack_apiserver_request_duration_seconds",
            "Time of calls to the API server, without watches.",
            ["verb", "resource"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.credential_failures = Counter(
            "vrampack_credential_failures_total",
            "Failures to read the token for the API server again; the last one stays in use.",
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
            "Faults found in the scheduler's configuration at the start; -1 when it was not checked.",
            registry=self.registry,
        )
        self.device_class_conflicts = Gauge(
            "vrampack_device_class_conflicts",
            "Device classes that claim the extender's resource; must be 0, and is -1 until that is known.",
            registry=self.registry,
        )
        for gauge in (self.scheduler_config_findings, self.device_class_conflicts):
            gauge.set(-1)
        self.shadow_decisions = Counter(
            "vrampack_shadow_decisions_total",
            "Decisions shown to the shadow policy, by result: same or other node, stale (the ledger changed first), skipped.",
            ["result"],
            registry=self.registry,
        )
        self.config_generation = Gauge(
            "vrampack_config_generation",
            "1 at the start, one more for each change of the configuration file that took effect.",
            registry=self.registry,
        )
        self.config_generation.set(1)
        self.config_reload_failures = Counter(
            "vrampack_config_reload_failures_total",
            "Changes of the configuration file that could not be used; the previous configuration stays in force.",
            registry=self.registry,
        )
        self.config_not_in_force = Gauge(
            "vrampack_config_not_in_force",
            "1 while the configuration file says something that is not in force: rejected (it is tried again), restart (needs one).",
            ["reason"],
            registry=self.registry,
        )
        self.certificates = CertificateMetrics(self.registry)
        _add_build_info(self.registry, version)
        for verb in VERBS:
            self.requests_in_flight.labels(verb)
        for reason in UnfitReason:
            self.rejected_nodes.labels(reason.value)
        for result in ACTIVATION_RESULTS:
            self.activations.labels(result)
        for result in EVICTION_RESULTS:
            self.evictions.labels(result)
        for result in BIND_RESULTS:
            self.binds.labels(result)
        for config_reason in CONFIG_REASONS:
            self.config_not_in_force.labels(config_reason)
        for result in PREEMPT_RESULTS:
            self.preemptions.labels(result)

    def observe_call(self, *, verb: str, resource: str, code: int, seconds: float) -> None:
        """A finished call to the API server; a `vrampack.kube.client.CallObserver`."""
        self.api_requests.labels(verb, resource, label_code(code)).inc()
        if verb != "watch":
            self.api_seconds.labels(verb, resource).observe(seconds)

    def render_page(self, ledger: Collector) -> bytes:
        """The text of /metrics. Safe in a thread, and meant for one: it may take 100 ms."""
        state = CollectorRegistry()
        state.register(ledger)
        return generate_latest(self.registry) + generate_latest(state)


def _start_at_zero(counter: Counter, series: Iterable[tuple[str, ...]]) -> None:
    """So that the first count is an increase: Prometheus sees none in a series that begins with 1."""
    for labels in series:
        counter.labels(*labels)


def _add_build_info(registry: CollectorRegistry, version: str) -> None:
    Gauge("vrampack_build_info", "1, labelled with the version.", ["version"], registry=registry).labels(version).set(1)
