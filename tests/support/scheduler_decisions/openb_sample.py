"""Some nodes and pods of openb, and their API objects."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from tests.support.scheduler_decisions.recording import RecordedNode
from vrampack.simulator.packing.trace_files import read_openb_nodes, read_openb_pods

Json: TypeAlias = dict[str, Any]  # Any: API objects

Request: TypeAlias = tuple[int, int, int]
"""Thousandths of a CPU, MiB, units."""

OPENB = Path(__file__).parents[3] / "benchmarks" / "data" / "openb"
TRACE = "default"


def sample_nodes(count: int, random: Random) -> list[RecordedNode]:
    drawn = random.sample(read_openb_nodes(OPENB), count)
    return [RecordedNode(*node.host, sum(node.card_units)) for node in drawn if node.host is not None]


def sample_requests(count: int, random: Random) -> list[Request]:
    """What pods of the trace ask for. Eight hundred fill 120 nodes."""
    drawn = random.sample(read_openb_pods(OPENB, TRACE), count)
    return [(*pod.host, pod.units) for pod in drawn if pod.host is not None]


def build_node(name: str, node: RecordedNode, resource: str) -> Json:
    amounts = {"cpu": f"{node.cpu_milli}m", "memory": f"{node.memory_mib}Mi", "pods": "1001", resource: str(node.units)}
    ready = {"type": "Ready", "status": "True", "reason": "MadeUp", "message": "no kubelet runs here"}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def build_pod(name: str, request: Request, resource: str, scheduler: str) -> Json:
    cpu_milli, memory_mib, units = request
    amounts = {"cpu": f"{cpu_milli}m", "memory": f"{memory_mib}Mi"}
    resources: Json = {"requests": {key: text for key, text in amounts.items() if not text.startswith("0")}}
    if units:
        resources["limits"] = {resource: str(units)}
    container = {"name": "main", "image": "example.com/app:1", "resources": resources}
    return {
        "metadata": {"name": name},
        "spec": {"schedulerName": scheduler, "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


def node_name(position: int) -> str:
    return f"node-{position:04}"


def pod_name(position: int) -> str:
    return f"pod-{position:05}"
