"""The recipe of docs/recipes/gpu-operator.md: NVIDIA's objects and our admission on one API server leave each other alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.recipes.definitions import establish_definition
from tests.support.control_plane.cluster import ControlPlane
from tests.support.gpu_operator import objects
from tests.support.gpu_operator.objects import NAMESPACE
from tests.support.manifest_builders import (
    PODS,
    cards_annotation,
    pod_manifest,
    published_card,
    read_allocation_record,
)
from tests.support.manifests import MANIFESTS, load_documents
from tests.support.processes import ManagedProcess

BEYOND = [MANIFESTS / "admission" / name for name in ("optional", "void")]
"""What is not in every cluster."""
FOR_OPERANDS = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB"}
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "critical-pods", "namespace": NAMESPACE},
    "spec": {
        "hard": {"pods": "1000"},
        "scopeSelector": {
            "matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]},
            ]
        },
    },
}
"""NVIDIA's manual asks for one where the cluster wants a quota for critical pods, as this one does."""


@pytest.fixture
def operator(cluster: ControlPlane) -> Iterator[None]:
    """The chart's objects and a node's operands, in a cluster with every policy of ours that there is."""
    for folder in BEYOND:
        cluster.kubectl("apply", "-k", folder)
    cluster.request_ok("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    establish_definition(cluster, objects.DEFINITION)
    _apply(cluster, [QUOTA, *objects.load_chart()])
    _apply(cluster, [*_accounts(), *objects.load_operands()])
    yield
    for folder in BEYOND:
        cluster.kubectl("delete", "-k", folder)


@pytest.mark.usefixtures("operator")
def test_operands_stay_unchanged_and_a_gpu_memory_pod_is_bound_beside_them(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram], scheduler: Callable[..., ManagedProcess]
) -> None:
    (values,) = load_documents(objects.VALUES)
    stored = cluster.request_ok("GET", "/apis/nvidia.com/v1/clusterpolicies/cluster-policy")
    assert _missing(values, stored["spec"]) == []
    operands = objects.load_operands()
    labels = {key: value for each in operands for key, value in _selector(each).items()}
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0)), labels=FOR_OPERANDS | labels)
    extender()
    scheduler()
    for operand in operands:
        name = operand["metadata"]["name"]
        made = cluster.wait_until(lambda name=name: _pod_of(cluster, name), 30, what=lambda: _refusals(cluster))  # type: ignore[misc]
        wanted = operand["spec"]["template"]["spec"]
        assert made["spec"]["schedulerName"] == "default-scheduler", name
        for kind in ("initContainers", "containers"):
            assert _environments(made["spec"], kind) == _environments(wanted, kind), name

    cluster.request_ok("POST", PODS, pod_manifest("asks", 4))
    bound = cluster.wait_until(lambda: _bound(cluster, "asks"), what="a pod that asks is bound")
    assert read_allocation_record(bound)["containers"]["main"][0]["units"] == 4


def _missing(wanted: Mapping[str, Any], found: Mapping[str, Any], path: str = "") -> list[str]:
    """The parts of the values that the policy does not have."""
    gone: list[str] = []
    for key, value in wanted.items():
        if isinstance(value, dict):
            gone += _missing(value, found.get(key, {}), f"{path}{key}.")
        elif found.get(key) != value:
            gone.append(f"{path}{key}: {found.get(key)}")
    return gone


def _apply(cluster: ControlPlane, items: list[Any]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    cluster.kubectl("apply", "--server-side", "-n", NAMESPACE, "-f", "-", input=text)


def _accounts() -> list[Any]:
    """The operator makes one for each operand."""
    names = {each["spec"]["template"]["spec"].get("serviceAccountName", "default") for each in objects.load_operands()}
    metadata = [{"name": name, "namespace": NAMESPACE} for name in sorted(names)]
    return [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": each} for each in metadata]


def _selector(operand: Any) -> dict[str, str]:  # noqa: ANN401 - a DaemonSet
    return dict(operand["spec"]["template"]["spec"].get("nodeSelector", {}))


def _pod_of(cluster: ControlPlane, operand: str) -> Any:  # noqa: ANN401 - the pod, None before it is made
    pods = cluster.request_ok("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    return next((pod for pod in pods if pod["metadata"]["ownerReferences"][0]["name"] == operand), None)


def _refusals(cluster: ControlPlane) -> str:
    events = cluster.request_ok("GET", f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
    return "\n".join(sorted({event["message"] for event in events}))


def _environments(spec: Any, kind: str) -> dict[str, list[str]]:  # noqa: ANN401 - a pod's
    """Names and values of each container's variables. A field's version is filled in by the API server."""
    return {
        each["name"]: [f"{entry['name']}={entry.get('value') or ''}" for entry in each.get("env", [])]
        for each in spec.get(kind, [])
    }


def _bound(cluster: ControlPlane, name: str) -> Any:  # noqa: ANN401 - the pod, None before
    pod = cluster.request_ok("GET", f"{PODS}/{name}")
    return pod if "nodeName" in pod["spec"] else None
