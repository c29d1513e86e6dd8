"""Prometheus and Alertmanager beside the node, configured by what the chart installed: monitors, rules, dashboards."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.alerts.monitoring_stack import MonitoringObjects, MonitoringStack, run_monitoring
from tests.alerts.programs import locate_programs
from tests.alerts.recount import MIB, TERMS, ClusterRecount
from tests.alerts.scrape_config import ScrapeTarget
from tests.auditor.cards import read_node
from tests.auditor.pods import read_pod
from tests.node.metrics import PORTS
from tests.node.node import NAMESPACE, LiveNode
from tests.node.pods import FOUNDING_PODS

SPEED = 30
"""A minute in 2 s; what is scraped every 30 s in a cluster is scraped every second here."""
LIMIT = "limit-mib.vrampack.dev/{}"
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class WatchedNode:
    """What a platform team sees of it."""

    node: LiveNode
    monitoring: MonitoringStack
    queries: Mapping[str, str]
    """Of panels, by their titles."""

    @property
    def names(self) -> set[str]:
        """Of all alerts that arrived."""
        return self.monitoring.receiver.names

    async def wait_until_notified(self, name: str, status: Literal["firing", "resolved"]) -> None:
        await self.monitoring.wait_until_notified(name, status)

    async def wait_for_panels(self) -> None:
        """What is allocated on nodes, by the extenders' metrics, and what each pod got, by the agent's."""
        pods = [self.node.get("pod", name) for name in FOUNDING_PODS]
        nodes = [read_node(each, TERMS) for each in self.node.list_objects("nodes")]
        counted = ClusterRecount(nodes, [read_pod(pod, TERMS) for pod in pods])
        held, capacity = counted.sum_held_bytes(), counted.sum_capacity_bytes()
        assert sum(held.values()) > 0
        await self._wait_for_panel(
            "Given away by node", {(("node", name),): held[name] / capacity[name] for name in capacity}
        )
        await self._wait_for_panel("Memory given", {_label_pod(pod): _sum_limits_bytes(pod) for pod in pods})

    async def _wait_for_panel(self, title: str, expected: Mapping[Labels, float]) -> None:
        shown: Mapping[Labels, float] = {}

        async def is_equal() -> bool:
            nonlocal shown
            shown = await self.monitoring.query_vector(self.queries[title])
            return shown == expected

        await self.monitoring.wait_until(is_equal, lambda: f"{title}: {shown}, not {expected}")


def read_monitoring_objects(node: LiveNode) -> MonitoringObjects:
    """As the chart made them, in the place of the operator."""
    monitors = node.list_objects("servicemonitors,podmonitors", "-n", NAMESPACE)
    (rules,) = node.list_objects("prometheusrules", "-n", NAMESPACE)
    return MonitoringObjects(monitors, rules["spec"]["groups"], SPEED)


@asynccontextmanager
async def watch_node(node: LiveNode, folder: Path, told: MonitoringObjects) -> AsyncIterator[WatchedNode]:
    """Everything of ours on the node is scraped, until the block ends."""
    async with run_monitoring(folder, locate_programs(), _list_targets(node), told) as monitoring:
        yield WatchedNode(node, monitoring, _read_queries(node))


def _list_targets(node: LiveNode) -> list[ScrapeTarget]:
    found = []
    for program, container in (("vrampack-scheduler", "extender"), ("vrampack-agent", "agent")):
        for pod in node.list_objects("pods", "-n", NAMESPACE, "-l", f"app.kubernetes.io/name={program}"):
            address = f"{pod['status']['podIP']}:{PORTS[program]}"
            name, host = pod["metadata"]["name"], pod["spec"]["nodeName"]
            found.append(ScrapeTarget(program, address, name, container, node=host))
    return found


def _read_queries(node: LiveNode) -> dict[str, str]:
    """Of all panels of all dashboards, with every variable at `All`."""
    files = node.get("configmap", "vrampack-dashboards", "-n", NAMESPACE)["data"].values()
    return {
        panel["title"]: target["expr"].replace("$namespace", ".*").replace("$pod", ".*").replace("$node", ".*")
        for dashboard in map(json.loads, files)
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
    }


def _label_pod(pod: Mapping[str, Mapping[str, str]]) -> Labels:
    return (("namespace", pod["metadata"]["namespace"]), ("pod", pod["metadata"]["name"]))


def _sum_limits_bytes(pod: Mapping[str, Mapping[str, Mapping[str, str]]]) -> float:
    """By the record."""
    prefix = LIMIT.format("")
    annotations = pod["metadata"]["annotations"]
    return sum(int(text) for key, text in annotations.items() if key.startswith(prefix)) * MIB
