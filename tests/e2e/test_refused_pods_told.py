"""A refused pod's condition on a real API server: it survives the scheduler's own, wakes no other pod, and its owner can read it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.activations import create_pod, wait_until_bound
from tests.e2e.transcripts import read_verb_calls
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card
from tests.support.processes import REPOSITORY

Start = Callable[..., Any]
CONDITION = "VrampackPlacement"


@pytest.fixture
def tenant(cluster: ControlPlane) -> Iterator[tuple[str, Path]]:
    """A namespace, and the kubeconfig of a user with the role `vrampack-user` there; the context names the namespace."""
    namespace = cluster.namespace("ml")
    binding = {
        "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "vrampack-user"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }
    cluster.request_ok("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", binding)
    kubeconfig = cluster.kubeconfig(namespace, "default")
    written = yaml.safe_load(kubeconfig.read_text())
    written["contexts"][0]["context"]["namespace"] = namespace
    kubeconfig.write_text(yaml.safe_dump(written))
    yield namespace, kubeconfig
    cluster.request_ok("DELETE", f"/api/v1/namespaces/{namespace}")


def in_pool_b(name: str, units: int, **metadata: Any) -> dict[str, Any]:  # noqa: ANN401 - passed on
    manifest = pod_manifest(name, units, **metadata)
    manifest["spec"]["nodeSelector"] = {"pool": "b"}
    return manifest


def explain(kubeconfig: Path, name: str, *arguments: str) -> str:
    command = [
        sys.executable,
        "-m",
        "vrampack.cli",
        "explain",
        "pod",
        name,
        *arguments,
        "--kubeconfig",
        str(kubeconfig),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def wait_until_told(cluster: ControlPlane, name: str, pods: str = PODS) -> str:
    """The condition's message."""

    def read_message() -> str:
        conditions = cluster.request_ok("GET", f"{pods}/{name}")["status"].get("conditions", [])
        return next((str(each["message"]) for each in conditions if each["type"] == CONDITION), "")

    return cluster.wait_until(read_message, what=f"{name} is told why")


def test_a_condition_has_its_own_pod_tried_once_more_and_no_other(
    cluster: ControlPlane, extender: Start, scheduler: Start, transcript: Path
) -> None:
    """12 of 15 units are held. Each pod is tried when it comes, and after its scheduler's condition and ours: three times."""
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0), published_card(1)))
    extender()
    scheduler()
    for name in ("held-0", "held-1"):
        wait_until_bound(cluster, create_pod(cluster, name, 9))

    def count_filters(name: str) -> int:
        return sum(call.verb == "filter" for call in read_verb_calls(transcript).get(name, ()))

    calls: list[int] = []
    for name in ("first", "second", "third"):
        assert "at most 6 free on one card, 2 missing" in wait_until_told(cluster, create_pod(cluster, name, 8))
        calls.append(count_filters("first"))
    assert calls[1] == calls[2] <= 3
    assert count_filters("second") <= 3
    conditions = cluster.request_ok("GET", f"{PODS}/first")["status"]["conditions"]
    assert {each["type"]: each["status"] for each in conditions} == {"PodScheduled": "False", CONDITION: "False"}


def test_a_tenant_is_told_what_is_wrong_then_why_she_waits_then_her_limit(
    cluster: ControlPlane, extender: Start, scheduler: Start, tenant: tuple[str, Path]
) -> None:
    """She may read nothing but pods and events of her namespace. Another tenant holds 9 of 15 units on both cards that she may use."""
    namespace, kubeconfig = tenant
    pods = f"/api/v1/namespaces/{namespace}/pods"
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0)))
    cards = cards_annotation(published_card(0), published_card(1))
    cluster.add_node("gpu-1", cards=cards, labels={"pool": "b"})
    extender()
    scheduler()
    for name in ("secret-0", "secret-1"):
        cluster.request_ok("POST", PODS, in_pool_b(name, 9))
        wait_until_bound(cluster, name)

    cluster.request_ok("POST", pods, in_pool_b("wrong", 8, annotations={"vrampack.dev/card-model": "A100"}))
    wait_until_told(cluster, "wrong", pods)
    assert "(CardModelNotAllowed, " in (said := explain(kubeconfig, "wrong"))
    assert "large enough when empty: Tesla V100-SXM2-16GB.\n" in said
    assert said.endswith("Next: change the request or the pod's selectors: waiting does not help.\n")

    cluster.request_ok("POST", pods, in_pool_b("waits", 8))
    told = wait_until_told(cluster, "waits", pods)
    said = explain(kubeconfig, "waits")
    assert f"it {told}.\n" in said
    assert "the nearest node is gpu-1 (Tesla V100-SXM2-16GB): no card with enough free memory, at most 6 free" in told
    assert "1 other node with cards was left out by the scheduler itself (pool=b)" in told
    assert "secret" not in said

    cluster.request_ok("DELETE", f"{PODS}/secret-1", {"gracePeriodSeconds": 0})
    cluster.wait_until(lambda: "nodeName" in cluster.request_ok("GET", f"{pods}/waits")["spec"], what="it is bound")
    placement = json.loads(explain(kubeconfig, "waits", "-o", "json"))["placement"]
    assert (placement["node"], placement["limitsMib"]) == ("gpu-1", {"main": 8602})  # 16130 * 8 / 15 = 8602.7
