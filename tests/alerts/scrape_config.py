"""What Prometheus Operator makes of our monitors: scrape configurations, here with targets at fixed addresses.

Only the fields that our monitors use are known; another one is an error. What the operator adds by itself is in its
`pkg/prometheus/promcfg.go`: the labels namespace, pod, container, endpoint, and for a ServiceMonitor service.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.support.manifests import MANIFESTS, load_documents

Json: TypeAlias = Any
"""A monitor or a part of Prometheus' configuration."""

NAMESPACE = "vrampack-system"
DCGM_EXPORTER = "dcgm-exporter"
OTHERS = {
    DCGM_EXPORTER: {
        "kind": "ServiceMonitor",
        "metadata": {"name": DCGM_EXPORTER},
        "spec": {"endpoints": [{"port": "gpu-metrics"}]},
    }
}
"""Monitors that are not ours: of the GPU Operator, which honors no labels."""
ENDPOINT_FIELDS = {"port", "interval", "honorLabels", "relabelings"}


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """One pod's page of metrics."""

    monitor: str
    """The ServiceMonitor or PodMonitor that selects it."""
    address: str
    """HOST:PORT."""
    pod: str
    container: str
    node: str = ""


def load_monitors() -> list[Json]:
    """Those that are shipped."""
    return load_documents(MANIFESTS / "monitoring" / "monitors.yaml")


def build_scrape_configs(targets: Iterable[ScrapeTarget], ours: Iterable[Json], *, interval: str) -> list[Json]:
    """One for each monitor that has targets; asked every `interval`, not as often as the monitor says."""
    found = tuple(targets)
    monitors = OTHERS | {item["metadata"]["name"]: item for item in ours}
    unknown = {target.monitor for target in found} - monitors.keys()
    if unknown:
        raise ValueError(f"no such monitor: {sorted(unknown)}")
    return [
        _build_scrape_config(monitor, [target for target in found if target.monitor == name], interval)
        for name, monitor in monitors.items()
        if any(target.monitor == name for target in found)
    ]


def _build_scrape_config(monitor: Json, targets: list[ScrapeTarget], interval: str) -> Json:
    name, is_pod_monitor = monitor["metadata"]["name"], monitor["kind"] == "PodMonitor"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints" if is_pod_monitor else "endpoints"]
    if unknown := endpoint.keys() - ENDPOINT_FIELDS:
        raise ValueError(f"{name}: this reader does not know {sorted(unknown)}")
    labels = {} if is_pod_monitor else {"service": name}
    return {
        "job_name": f"{monitor['kind']}/{NAMESPACE}/{name}",
        "honor_labels": endpoint.get("honorLabels", False),
        "scrape_interval": interval,
        "scrape_timeout": interval,
        "static_configs": [
            {
                "targets": [target.address],
                "labels": labels
                | {"namespace": NAMESPACE, "pod": target.pod, "container": target.container}
                | {"endpoint": endpoint["port"], "__meta_kubernetes_pod_node_name": target.node},
            }
            for target in targets
        ],
        "relabel_configs": [
            {"source_labels": rule["sourceLabels"], "target_label": rule["targetLabel"]}
            for rule in endpoint.get("relabelings", [])
        ],
    }
