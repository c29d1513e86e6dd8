"""Pods under the real scheduler: created and bound, where they went, or why they wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import (
    PODS,
    read_allocation_record,
)

Start = Callable[..., Any]


def run_pods(cluster: ControlPlane, *pods: dict[str, Any]) -> list[Any]:
    """Create the pods one after another and wait until each is bound."""
    return [wait_until_bound(cluster, cluster.request_ok("POST", PODS, pod)["metadata"]["name"]) for pod in pods]


def wait_until_bound(cluster: ControlPlane, name: str) -> Any:  # noqa: ANN401 - the pod as the API server holds it
    def read_placement() -> Any:  # noqa: ANN401 - as above
        pod = cluster.request_ok("GET", f"{PODS}/{name}")
        return pod if "nodeName" in pod["spec"] else None

    return cluster.wait_until(read_placement, what=lambda: f"{name} bound: {read_refusal(cluster, name)}")


def read_refusal(cluster: ControlPlane, name: str) -> str:
    conditions = cluster.request_ok("GET", f"{PODS}/{name}")["status"].get("conditions", [])
    return next((str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"), "")


def list_places(pods: list[Any]) -> list[tuple[str, list[int]]]:
    return [(pod["spec"]["nodeName"], [card["index"] for card in read_allocation_record(pod)["cards"]]) for pod in pods]
