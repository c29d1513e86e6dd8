"""CPU and memory of pods and nodes, summed as the scheduler sums them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from vrampack.cards.host_room import HostResources
from vrampack.kube.host_requests import read_allocatable_host, read_host_request
from vrampack.kube.objects import NodeObject, PodSpec


def asking(cpu: str | None = None, memory: str | None = None, **more: object) -> dict[str, object]:
    requests = {name: text for name, text in (("cpu", cpu), ("memory", memory)) if text is not None}
    return {"name": "c", "resources": {"requests": requests}} | more


SPECS: dict[str, tuple[dict[str, Any], HostResources]] = {
    "nothing": ({"containers": [{"name": "c"}]}, HostResources(0, 0)),
    "containers add up": ({"containers": [asking("500m", "1Gi"), asking("2", "512Mi")]}, HostResources(2500, 1536)),
    # 1 + 1 running; the init container of 3 runs before them
    "the larger of init and main": (
        {"containers": [asking("1"), asking("1")], "initContainers": [asking("3")]},
        HostResources(3000, 0),
    ),
    # the sidecar runs beside the init container that follows it, and beside the main one: 1 + 3 and 1 + 2
    "sidecars stay": (
        {"containers": [asking("2")], "initContainers": [asking("1", restartPolicy="Always"), asking("3")]},
        HostResources(4000, 0),
    ),
    "overhead": (
        {"containers": [asking("1")], "overhead": {"cpu": "250m", "memory": "120Mi"}},
        HostResources(1250, 120),
    ),
    "rounded up": ({"containers": [asking("0.0001", "1")]}, HostResources(1, 1)),
    "no quantity": ({"containers": [asking("much", "1Gi")]}, HostResources(0, 1024)),
}


@pytest.mark.parametrize(("spec", "want"), SPECS.values(), ids=SPECS)
def test_cpu_and_memory_requests_of_a_pod_are_summed(spec: dict[str, Any], want: HostResources) -> None:
    assert read_host_request(msgspec.json.decode(json.dumps(spec), type=PodSpec)) == want


def test_a_node_has_the_resources_that_kubelet_reports_as_allocatable() -> None:
    def read(allocatable: dict[str, str]) -> HostResources | None:
        body = json.dumps({"status": {"allocatable": allocatable}})
        return read_allocatable_host(msgspec.json.decode(body, type=NodeObject))

    assert read({"cpu": "7910m", "memory": "32779232Ki"}) == HostResources(7910, 32010)
    assert read({"cpu": "8"}) is None
