"""Every metric of the extender and of the admission webhook, with its help text. `docs/metrics.md` lists them; a test compares the two.

No label names a pod, a card or a uid: the number of series would grow without bound. The agent has the series of cards and containers.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from vrampack.cards.reasons import UnfitReason
from vrampack.http.metric_registry import MetricRegistry
from vrampack.kube.api_caller import FOREIGN_CODE, label_code

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
TASKS = ("follower", "mix", "activator", "shadow", "reload", "preemption", "autoscaling", "answers")
"""What begins again after a fault."""
CARD_PREEMPTION_RESULTS = ("planned", "begun", "withdrawn", "budget", "served", "elsewhere", "gone", "in_vain")
CARD_EVICTION_RESULTS = ("evicted", "budget", "gone", "failed")
EVICTION_RESULTS = ("evicted", "kept", "budget", "gone", "failed")
ACTIVATION_RESULTS = ("bound", "refused", "expired", "gone", "failed")
KEPT_NODE_STATES = ("kept", "ended", "foreign")
NODE_PROTECTION_RESULTS = ("kept", "ended", "free", "failed")
PLACEHOLDER_RESULTS = ("made", "served", "node_came", "expired", "failed")
CONFIG_REASONS = ("rejected", "restart")


class CertificateMetrics:
    """For the TLS listeners of one process; the other listeners have no series."""

    def __init__(self, registry: MetricRegistry) -> None:
        self.expiry = registry.add_gauge(
            "vrampack_certificate_expiry_seconds",
            "When the listener's certificate expires, in Unix seconds.",
            ["listener"],
        )
        self.reload_failures = registry.add_counter(
            "vrampack_certificate_reload_failures_total",
            "Changes of the listener's TLS files that could not be used; the previous files stay in force.",
            ["listener"],
        )


class AdmissionMetrics:
    """The registry of one admission webhook."""

    def __init__(self, version: str) -> None:
        self.registry = registry = MetricRegistry()
        self.request_seconds = registry.add_histogram(
            "vrampack_admission_request_duration_seconds",
            "Time of a call of the admission webhook, by result: changed, unchanged, refused, malformed, error.",
            ["result"],
        )
        self.certificates = CertificateMetrics(registry)
        _add_build_info(registry, version)

    def render_page(self) -> bytes:
        """The text of /metrics."""
        return generate_latest(self.registry)


class ExtenderMetrics:
    """The registry of one extender."""

    def __init__(self, version: str) -> None:
        self.registry = registry = MetricRegistry()
        self.request_seconds = registry.add_histogram(
            "vrampack_extender_request_duration_seconds",
            "Time from a verb's last byte received to its answer, by result: ok, no (nothing fits), error.",
            ["verb", "result"],
        )
        self.requests_in_flight = registry.add_gauge(
            "vrampack_extender_requests_in_flight", "Verb calls being answered now.", ["verb"], series=VERBS
        )
        self.rejected_nodes = registry.add_counter(
            "vrampack_extender_rejected_nodes_total",
            "Nodes refused by filter, by reason.",
            ["reason"],
            series=[each.value for each in UnfitReason],
        )
        self.binds = registry.add_counter(
            "vrampack_bind_total", "Bind calls answered, by result.", ["result"], series=BIND_RESULTS
        )
        self.bind_conflicts = registry.add_counter(
            "vrampack_bind_conflicts_total", "Binds refused because the place that filter found had been taken."
        )
        self.stale_bindings = registry.add_counter(
            "vrampack_stale_bindings_total",
            "Bindings refused because the pod had changed since the watch showed it, and tried once more.",
        )
        self.second_extender = registry.add_counter(
            "vrampack_second_extender_total",
            "Times that this extender and another one bound pods in turns, four turns within 45 s; must be 0.",
        )
        self.preemptions = registry.add_counter(
            "vrampack_preempt_total",
            "Preempt calls answered, by result: ok (victims as proposed), added (more of them), no (no node), or an error.",
            ["result"],
            series=PREEMPT_RESULTS,
        )
        self.activations = registry.add_counter(
            "vrampack_pod_activations_total",
            "Waiting pods activated because room for them appeared, by outcome.",
            ["result"],
            series=ACTIVATION_RESULTS,
        )
        self.evictions = registry.add_counter(
            "vrampack_evictions_total",
            "Pods that the agents of their nodes refuse, by outcome of evicting them: evicted, kept (no controller), budget, gone, failed.",
            ["result"],
            series=EVICTION_RESULTS,
        )
        self.card_preemptions = registry.add_counter(
            "vrampack_card_preemptions_total",
            "Preemptions by card: planned, begun, withdrawn (no pod went), budget, and their ends: served, elsewhere, gone, in_vain.",
            ["result"],
            series=CARD_PREEMPTION_RESULTS,
        )
        self.card_preemption_evictions = registry.add_counter(
            "vrampack_card_preemption_evictions_total",
            "Pods evicted for others by card, by outcome: evicted, budget (a PodDisruptionBudget), gone, failed.",
            ["result"],
            series=CARD_EVICTION_RESULTS,
        )
        self.card_preemption_leader = registry.add_gauge(
            "vrampack_card_preemption_leader", "1 while this extender may evict pods for others by card."
        )
        self.kept_nodes = registry.add_gauge(
            "vrampack_kept_nodes",
            "Nodes that autoscalers are asked to leave alone, by state: kept, ended (for too long), foreign (by somebody else).",
            ["state"],
            series=KEPT_NODE_STATES,
        )
        self.node_protections = registry.add_counter(
            "vrampack_node_protections_total",
            "Nodes written to be left alone by autoscalers, or no longer, by new state: kept, ended, free, failed (not written).",
            ["result"],
            series=NODE_PROTECTION_RESULTS,
        )
        self.placeholders = registry.add_counter(
            "vrampack_placeholders_total",
            "Placeholders for autoscalers: made, deleted because served, node_came or expired (no node came), failed (not written).",
            ["result"],
            series=PLACEHOLDER_RESULTS,
        )
        self.bound_after_flush = registry.add_counter(
            "vrampack_bound_after_flush_total",
            "Rejected pods that pass filter more than 290 s after there was room for them, without an activation; must be 0.",
        )
        self.annotation_violations = registry.add_counter(
            "vrampack_annotation_violations_total",
            "Annotations that could not be read or contradict each other, and objects that could not be decoded, by kind.",
            ["kind"],
        )
        self.api_requests = registry.add_counter(
            "vrampack_apiserver_requests_total",
            "Calls to the API server; code 0 means no answer, foreign that another server answered.",
            ["verb", "resource", "code"],
            series=[(*call, label_code(FOREIGN_CODE)) for call in CALLS_ANSWERED_BY_OTHERS],
        )
        self.api_denied = registry.add_gauge(
            "vrampack_apiserver_denied",
            "1 while the API server answers calls about pods with 401 or 403 only, and says that the account lacks the right.",
        )
        self.internal_errors = registry.add_counter(
            "vrampack_internal_errors_total",
            "Faults of vrampack in a verb or a task, after which its caches are built again from the ledger.",
            ["during"],
            series=(*VERBS, *TASKS),
        )
        self.api_seconds = registry.add_histogram(
            "vrampack_apiserver_request_duration_seconds",
            "Time of calls to the API server, without watches.",
            ["verb", "resource"],
        )
        self.credential_failures = registry.add_counter(
            "vrampack_credential_failures_total",
            "Failures to read the token for the API server again; the last one stays in use.",
        )
        self.relists = registry.add_counter(
            "vrampack_relists_total", "Full lists begun, by cause.", ["resource", "reason"]
        )
        self.events_dropped = registry.add_counter(
            "vrampack_events_dropped_total", "Events not written, by cause: repeated, rate, failed.", ["cause"]
        )
        self.scheduler_config_findings = registry.add_gauge(
            "vrampack_scheduler_config_findings",
            "Faults found in the scheduler's configuration at the start; -1 when it was not checked.",
        )
        self.device_class_conflicts = registry.add_gauge(
            "vrampack_device_class_conflicts",
            "Device classes that claim the extender's resource; must be 0, and is -1 until that is known.",
        )
        self.scheduler_config_findings.set(-1)
        self.device_class_conflicts.set(-1)
        self.shadow_decisions = registry.add_counter(
            "vrampack_shadow_decisions_total",
            "Decisions shown to the shadow policy, by result: same or other node, stale (the ledger changed first), skipped.",
            ["result"],
        )
        self.config_generation = registry.add_gauge(
            "vrampack_config_generation",
            "1 at the start, one more for each change of the configuration file that took effect.",
        )
        self.config_generation.set(1)
        self.config_reload_failures = registry.add_counter(
            "vrampack_config_reload_failures_total",
            "Changes of the configuration file that could not be used; the previous configuration stays in force.",
        )
        self.config_not_in_force = registry.add_gauge(
            "vrampack_config_not_in_force",
            "1 while the configuration file says something that is not in force: rejected (it is tried again), restart (needs one).",
            ["reason"],
            series=CONFIG_REASONS,
        )
        self.certificates = CertificateMetrics(registry)
        _add_build_info(registry, version)

    def observe_call(self, *, verb: str, resource: str, code: int, seconds: float) -> None:
        """A finished call to the API server; a `vrampack.kube.api_caller.CallObserver`."""
        self.api_requests.labels(verb, resource, label_code(code)).inc()
        if verb != "watch":
            self.api_seconds.labels(verb, resource).observe(seconds)

    def render_page(self, ledger: Collector) -> bytes:
        """The text of /metrics. Safe in a thread, and meant for one: it may take 100 ms."""
        state = CollectorRegistry()
        state.register(ledger)
        return generate_latest(self.registry) + generate_latest(state)


def _add_build_info(registry: MetricRegistry, version: str) -> None:
    registry.add_gauge("vrampack_build_info", "1, labelled with the version.", ["version"]).labels(version).set(1)
