"""The cluster's own scheduler with the extender on its host: what kubeadm's static pod becomes, and what is then bound.

Here the extender has its own few rights and no scheduler's, so this is where their list is put to the test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.e2e import kubeadm
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.verb_calls import read_metric
from tests.support.control_plane.access_denials import NAMESPACE
from tests.support.control_plane.cluster import ControlPlane, Json
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card, read_allocation_record
from tests.support.manifests import MANIFESTS
from tests.support.processes import ManagedProcess


@pytest.fixture(autouse=True, scope="module")
def _shape(cluster: ControlPlane) -> Iterator[None]:
    with kubeadm.with_kubeadm_shape(cluster):
        yield


def test_patch_adds_the_configuration_flag_and_its_mount(cluster: ControlPlane) -> None:
    before, after = kubeadm.STATIC_POD["spec"], kubeadm.patched_static_pod(cluster)["spec"]
    (was,), (now,) = before["containers"], after["containers"]
    folder = "/etc/kubernetes/vrampack"
    assert now["command"] == [*was["command"], f"--config={folder}/scheduler.yaml"]
    assert now["volumeMounts"] == [*was["volumeMounts"], {"name": "vrampack", "mountPath": folder, "readOnly": True}]
    assert after["volumes"] == [
        *before["volumes"],
        {"name": "vrampack", "hostPath": {"path": folder, "type": "Directory"}},
    ]


def test_the_clusters_own_scheduler_binds_with_a_record(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram], scheduler: Callable[..., ManagedProcess]
) -> None:
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0), published_card(1)))
    extender()
    scheduler(**kubeadm.scheduler_options(cluster))
    for name in ("a", "b"):
        cluster.request_ok("POST", PODS, pod_manifest(name, 4, scheduler="default-scheduler"))
    plain = {"name": "main", "image": "example.com/plain:1"}
    cluster.request_ok("POST", PODS, {"metadata": {"name": "plain"}, "spec": {"containers": [plain]}})

    def bound() -> list[Json] | None:
        pods = cluster.request_ok("GET", PODS)["items"]
        return pods if len(pods) == 3 and all("nodeName" in pod["spec"] for pod in pods) else None

    pods = {pod["metadata"]["name"]: pod for pod in cluster.wait_until(bound, what="three pods are bound") or ()}
    records = {name: read_allocation_record(pod) for name, pod in pods.items()}
    assert {pod["spec"]["schedulerName"] for pod in pods.values()} == {"default-scheduler"}
    assert records["plain"] is None
    assert [card["index"] for name in ("a", "b") for card in records[name]["cards"]] == [0, 0]


def test_the_extenders_own_role_is_sufficient(cluster: ControlPlane, extender: Callable[..., ExtenderProgram]) -> None:
    """In the other shape the scheduler's role allows it anyway. Here the extender is not given that scheduler's configuration."""
    running = extender()
    cluster.wait_until(lambda: read_metric(running, "vrampack_device_class_conflicts") == 0, what="it has looked")
    assert read_metric(running, "vrampack_scheduler_config_findings") == -1


def test_control_plane_hosts_and_no_others_get_an_extender(cluster: ControlPlane) -> None:
    """Made by the real controller, admitted under the namespace's profile and quota."""
    cluster.kubectl("apply", "-k", MANIFESTS / "kubeadm")  # the cleaning after a test takes workloads away
    cluster.add_node("control-plane", labels={"node-role.kubernetes.io/control-plane": ""})
    cluster.add_node("worker")

    pods = cluster.wait_until(lambda: cluster.request_ok("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"])

    (pod,) = pods
    assert '"control-plane"' in json.dumps(pod["spec"]["affinity"])
    assert pod["spec"]["hostNetwork"] is True
    assert "vrampack" not in pod["spec"].get("schedulerName", "")


def test_only_gpu_memory_pods_wait_while_the_extender_is_down(
    cluster: ControlPlane, scheduler: Callable[..., ManagedProcess]
) -> None:
    """What a rollback, or an extender that is down, costs meanwhile."""
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0)))
    scheduler(**kubeadm.scheduler_options(cluster))
    cluster.request_ok("POST", PODS, pod_manifest("asks", 4, scheduler="default-scheduler"))
    plain = {"name": "main", "image": "example.com/plain:1"}
    cluster.request_ok("POST", PODS, {"metadata": {"name": "plain"}, "spec": {"containers": [plain]}})

    def refusal() -> str:
        conditions = cluster.request_ok("GET", f"{PODS}/asks")["status"].get("conditions", [])
        return next((str(found["message"]) for found in conditions if found["type"] == "PodScheduled"), "")

    cluster.wait_until(
        lambda: "nodeName" in cluster.request_ok("GET", f"{PODS}/plain")["spec"], what="the plain pod is bound"
    )
    assert "connection refused" in cluster.wait_until(refusal, what="the pod that asks is told why")
    assert "nodeName" not in cluster.request_ok("GET", f"{PODS}/asks")["spec"]
