"""Empties a cluster between tests, so that one boot serves the whole suite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tests.support.control_plane.access_denials import NAMESPACE
from tests.support.polling import wait_until

MAKERS = (
    "/apis/apps/v1/{}/deployments",
    "/apis/apps/v1/{}/statefulsets",
    "/apis/apps/v1/{}/replicasets",
    "/apis/apps/v1/{}/daemonsets",
    "/apis/batch/v1/{}/jobs",
    "/apis/policy/v1/{}/poddisruptionbudgets",
)
"""What makes pods, or keeps them from being evicted; it goes before the pods."""
LEASES = (
    f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases",
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?fieldSelector=metadata.name=kube-scheduler",
)
EVENTS = "/api/v1/namespaces/default/events?limit=500"
"""Of pods whose names the next test may use; hundreds of trials leave more than one call may delete."""
CLEAN_UP_SECONDS = 120
"""For what tests left behind: a thousand pods, or as many events, on a busy machine."""
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
AT_ONCE = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}


class ApiDelete(Protocol):
    """A request as administrator that raises unless it succeeds; the answer is the parsed JSON of any kind of object."""

    def __call__(self, method: str, path: str, body: object = None) -> Any: ...  # noqa: ANN401 - any JSON


def reset_cluster(call: ApiDelete) -> None:
    """Delete what tests make, except namespaces: no test reuses a name, and the controller makes a hundred calls to end one."""
    for collection in MAKERS:
        _delete_everywhere(call, collection)
    _wait_until_gone("pod", lambda: _delete_everywhere(call, "/api/v1/{}/pods"))
    _wait_until_gone("node", lambda: _delete_nodes(call))
    for leases in LEASES:
        call("DELETE", leases, AT_ONCE)  # a killed scheduler's lease would hold up the next one for 15 s
    _wait_until_gone("event", lambda: bool(call("DELETE", EVENTS, AT_ONCE)["items"]))
    for made in _items(call, PRIORITIES):
        if not made["metadata"]["name"].startswith("system-"):
            call("DELETE", f"{PRIORITIES}/{made['metadata']['name']}", AT_ONCE)


def _wait_until_gone(kind: str, delete_all: Callable[[], bool]) -> None:
    """Repeat `delete_all`, which deletes what it finds and returns whether there was any."""
    wait_until(lambda: not delete_all(), timeout_seconds=CLEAN_UP_SECONDS, what=f"no {kind} is left")


def _delete_nodes(call: ApiDelete) -> bool:
    """Delete all nodes, also those that a test held back by a finalizer; whether there was any."""
    found = _items(call, "/api/v1/nodes")
    for node in found:
        if node["metadata"].pop("finalizers", None):
            call("PUT", f"/api/v1/nodes/{node['metadata']['name']}", node)
    call("DELETE", "/api/v1/nodes", AT_ONCE)
    return bool(found)


def _delete_everywhere(call: ApiDelete, collection: str) -> bool:
    """Delete a kind in every namespace that has one; whether there was any."""
    found = _items(call, collection.format("").replace("//", "/"))
    for namespace in sorted({item["metadata"]["namespace"] for item in found}):
        call("DELETE", collection.format(f"namespaces/{namespace}"), AT_ONCE)
    return bool(found)


def _items(call: ApiDelete, path: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = call("GET", path)["items"]
    return items
