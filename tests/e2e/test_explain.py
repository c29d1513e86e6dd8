"""`vrampack explain` beside the real scheduler: it gives the scheduler's own reason, and needs to read no more than pods and nodes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.explained_actions import DrawnPod, explain_now
from tests.e2e.verb_calls import read_ledger_states
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card
from tests.support.processes import REPOSITORY

Start = Callable[..., Any]
DRAWN = 8
ROLES = "/apis/rbac.authorization.k8s.io/v1"
RULES = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
)
WORKLOAD_RULES = (
    {"apiGroups": ["apps"], "resources": ["deployments", "replicasets"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["list"]},
)


@pytest.fixture
def reader(cluster: ControlPlane) -> Iterator[Path]:
    """The kubeconfig of a user who may read pods and nodes, and nothing else."""
    namespace = cluster.namespace("reader")
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace}
    metadata = {"name": namespace}
    cluster.request_ok("POST", f"{ROLES}/clusterroles", {"metadata": metadata, "rules": RULES})
    cluster.request_ok(
        "POST", f"{ROLES}/clusterrolebindings", {"metadata": metadata, "roleRef": role, "subjects": [subject]}
    )
    yield cluster.kubeconfig(namespace, "default")
    for kind in ("clusterrolebindings", "clusterroles"):
        cluster.request_ok("DELETE", f"{ROLES}/{kind}/{namespace}")


def explain(kubeconfig: Path, *arguments: str, kind: str = "pod") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vrampack.cli", "explain", kind, *arguments, "--kubeconfig", str(kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY, timeout=60)


def explained(kubeconfig: Path, name: str) -> Any:  # noqa: ANN401 - a JSON document
    done = explain(kubeconfig, f"default/{name}", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def create(cluster: ControlPlane, name: str, units: int) -> None:
    cluster.request_ok("POST", PODS, pod_manifest(name, units))


def until_bound(cluster: ControlPlane, name: str) -> None:
    cluster.wait_until(lambda: "nodeName" in cluster.request_ok("GET", f"{PODS}/{name}")["spec"], what=f"{name} bound")


def until_refused(cluster: ControlPlane, name: str) -> str:
    """The scheduler's message."""

    def read_explanation() -> str:
        conditions = cluster.request_ok("GET", f"{PODS}/{name}")["status"].get("conditions", [])
        return next((str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"), "")

    return cluster.wait_until(read_explanation, what=f"{name} refused")


def test_a_pending_pod_is_explained_in_the_schedulers_words_and_then_as_bound(
    cluster: ControlPlane, extender: Start, scheduler: Start, reader: Path
) -> None:
    """Two pods of 4 share a card of 15 and 7 stay free; the other card has 3. The scheduler's own sum, 10, would do for 8."""
    cluster.add_node("gpu-1", cards=cards_annotation(published_card(0), published_card(1)))
    service = extender()
    scheduler()
    for name, units in (("app-0", 4), ("app-1", 4), ("large", 12)):
        create(cluster, name, units)
        until_bound(cluster, name)
    create(cluster, "waits", 8)
    message = until_refused(cluster, "waits")

    told = explained(reader, "waits")

    assert told["scheduler"]["message"] == message
    ((reason, count),) = told["reasons"].items()
    assert f"0/1 nodes are available: {count} {reason}." in message
    assert [(card["freeUnits"], card["missingUnits"]) for card in told["nodes"][0]["cards"]] == [(7, 1), (3, 5)]
    assert told["next"] == ("free 1 unit on gpu-1 GPU0 (pods there: default/app-0 4, default/app-1 4), or add a card")
    cluster.request_ok("DELETE", f"{PODS}/app-0")
    cluster.wait_until(lambda: "app-0" not in str(read_ledger_states(service)), what="the extender has seen it go")
    # The scheduler may have asked a moment before; a write to the pod has it ask again.
    annotation = {"metadata": {"annotations": {"example.com/ask": "again"}}}
    cluster.request_ok("PATCH", f"{PODS}/waits", annotation, content_type="application/merge-patch+json")
    until_bound(cluster, "waits")
    bound = explained(reader, "waits")
    assert (bound["pod"]["state"], bound["placement"]["node"]) == ("bound", "gpu-1")
    assert [(card["index"], card["units"]) for card in bound["placement"]["cards"]] == [(0, 8)]
    assert bound["placement"]["limitsMib"] == {"main": 8602}  # 16130 * 8 / 15 = 8602.7


def test_pod_refused_by_the_schedulers_own_sum_is_explained_card_by_card(
    cluster: ControlPlane, extender: Start, scheduler: Start, reader: Path
) -> None:
    """4 + 4 + 8 are more than 15: the scheduler does not even ask the extender. The card lacks 1 all the same."""
    cluster.add_node("gpu-1", cards=cards_annotation(published_card(0)))
    extender()
    scheduler()
    for name in ("app-0", "app-1"):
        create(cluster, name, 4)
        until_bound(cluster, name)
    create(cluster, "waits", 8)
    message = until_refused(cluster, "waits")

    done = explain(reader, "waits")

    assert done.returncode == 0
    assert "Insufficient aliyun.com/gpu-mem" in message
    assert "\ngpu-1     0        7/15        1  not enough free memory\n" in done.stdout
    assert f"\nScheduler vrampack says: {message}\n" in done.stdout
    assert (
        "\nNext: free 1 unit on gpu-1 GPU0 (pods there: default/app-0 4, default/app-1 4), or add a card.\n"
        in done.stdout
    )


def test_a_pod_is_bound_once_its_actions_are_done(
    cluster: ControlPlane, extender: Start, scheduler: Start, reader: Path
) -> None:
    """Pods with two nodes each: full, too small, cordoned, tainted, without the label, or with a cordoned card."""
    pods = [DrawnPod(cluster, number) for number in range(DRAWN)]
    extender()
    scheduler()
    for name in [name for pod in pods for name in pod.fill_nodes()]:
        until_bound(cluster, name)
    for pod in pods:
        pod.create()
    kinds: set[str] = set()
    for pod in pods:
        actions = explain_now(reader, pod.name).actions
        while actions[-1].kind != "wait":
            kinds |= {action.kind for action in actions}
            for action in actions:
                pod.do(action)
            actions = explain_now(reader, pod.name).actions
        pod.open_gate()
    assert kinds == {"change-request", "free", "label", "remove-gates", "remove-taint", "uncordon"}
    for pod in pods:
        until_bound(cluster, pod.name)


def test_a_deployment_whose_pods_a_quota_refuses_is_explained_by_what_its_controller_wrote(
    cluster: ControlPlane,
) -> None:
    """The reader has rights in that namespace only. Pods of 4 are asked for, and the quota is 3."""
    namespace = cluster.namespace("quota")
    folder = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    cluster.request_ok("POST", f"{folder}/roles", {"metadata": {"name": "reader"}, "rules": WORKLOAD_RULES})
    binding = {"metadata": {"name": "reader"}, "roleRef": role, "subjects": [subject]}
    cluster.request_ok("POST", f"{folder}/rolebindings", binding)
    hard = {"requests.aliyun.com/gpu-mem": "3"}
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    cluster.request_ok("POST", quotas, {"metadata": {"name": "gpu"}, "spec": {"hard": hard}})
    cluster.wait_until(
        lambda: cluster.request_ok("GET", f"{quotas}/gpu")["status"].get("hard"), what="the quota is in force"
    )
    labels = {"app": "train"}
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod_manifest("train", 4)["spec"]},
    }
    deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    cluster.request_ok("POST", deployments, {"metadata": {"name": "train"}, "spec": spec})
    reader = cluster.kubeconfig(namespace, "default")

    def read_refusal() -> str:
        done = explain(reader, f"{namespace}/train", kind="deployment")
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout if "exceeded quota" in done.stdout else ""

    said = cluster.wait_until(read_refusal, timeout_seconds=20, what="the controller wrote why")

    headline, cause, step = [line for line in said.splitlines() if line]
    assert headline == f"Deployment {namespace}/train wants 2 and has none of its pods."
    assert "exceeded quota: gpu, requested: requests.aliyun.com/gpu-mem=4, used: " in cause
    assert step == "Next: ask for less, delete pods that count against the quota, or have it raised."


def test_explain_names_the_read_rights_that_a_user_lacks(cluster: ControlPlane) -> None:
    namespace = cluster.namespace("nobody")
    done = explain(cluster.kubeconfig(namespace, "default"), "waits")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith('vrampack: 403 Forbidden: pods "waits" is forbidden')
    assert done.stderr.endswith(
        "explain needs get of the pod, and to show cards list of nodes and of all pods (and of namespaces, where rules name "
        "their labels; and of the workload, its ReplicaSets and events)\n"
    )
