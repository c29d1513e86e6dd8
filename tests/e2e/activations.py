"""Pods that wait for room, and the calls by which the extender has the scheduler ask again: the status patch, and filter."""

from __future__ import annotations

from tests.e2e.in_cluster import ExtenderProgram
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, pod_manifest

ACTIVATION = r"^/api/v1/namespaces/default/pods/[^/]+/status$"
FILTER = r"/filter$"


def create_pod(cluster: ControlPlane, name: str, units: int = 15) -> str:
    return str(cluster.request_ok("POST", PODS, pod_manifest(name, units))["metadata"]["name"])


def wait_until_bound(cluster: ControlPlane, name: str) -> str:
    cluster.wait_until(
        lambda: "nodeName" in cluster.request_ok("GET", f"{PODS}/{name}")["spec"], what=f"{name} is bound"
    )
    return name


def wait_until_refused(cluster: ControlPlane, name: str) -> str:
    """Wait until the scheduler has reported that the pod fits nowhere."""

    def is_refused() -> bool:
        conditions = cluster.request_ok("GET", f"{PODS}/{name}")["status"].get("conditions", [])
        return any(each.get("reason") == "Unschedulable" for each in conditions)

    cluster.wait_until(is_refused, what=f"{name} is refused")
    return name


def count_filter_calls(ours: ExtenderProgram) -> int:
    """How often filter was called."""
    if ours.front is None:
        raise ValueError("calls of an extender without a front are not counted")
    return ours.front.count("POST", FILTER)
