"""The recipe of docs/recipes/kueue.md: two teams' queues on GPU memory, and pods that wait in them without costing the extender a call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from http.client import BAD_REQUEST, CREATED
from pathlib import Path

import pytest

from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.transcripts import read_verb_calls
from tests.support.control_plane.access_denials import NAMESPACE
from tests.support.control_plane.cluster import ControlPlane, Json
from tests.support.kueue.manager import RECIPE
from tests.support.manifest_builders import cards_annotation, published_card
from tests.support.manifests import load_documents
from tests.support.processes import ManagedProcess

TEAMS = ("team-a", "team-b")
PODS_OF_A_TEAM = 250
UNITS = 4
QUOTAS = {"t4": 2 * 60, "a100": 2 * 320}
"""Of both teams together, in the recipe's queues: who has more pods than its own may borrow."""
AT_ONCE = sum(QUOTAS.values()) // UNITS
"""190 pods have quota at the same time."""
MODELS = {"t4": ("Tesla-T4", 15), "a100": ("NVIDIA-A100-SXM4-80GB", 80)}
"""By the first part of a node's name: what feature discovery calls the model, and units of a card."""
NODES_OF_A_MODEL = 3
CARDS_OF_A_NODE = 4
"""12 cards of 15 units take 36 pods of 4, more than the quota lets go: what is let go has room."""
LABEL = "nvidia.com/gpu.product"
GATE = "kueue.x-k8s.io/admission"
ROUND_SECONDS = 120
"""Kueue asks the API server 50 times a second and no more, as it is released."""


@pytest.mark.timeout(500)
def test_gated_pods_cause_no_extender_calls_until_kueue_admits_them(
    cluster: ControlPlane,
    extender: Callable[..., ExtenderProgram],
    scheduler: Callable[..., ManagedProcess],
    transcript: Path,
    kueue: ManagedProcess,
) -> None:
    _add_nodes(cluster)
    cluster.kubectl("apply", "-f", RECIPE / "queues.yaml")
    extender()
    scheduler()
    (pod,) = load_documents(RECIPE / "pod.yaml")
    for _ in range(PODS_OF_A_TEAM):
        for team in TEAMS:
            made = cluster.request_ok("POST", f"/api/v1/namespaces/{team}/pods", pod)
            assert GATE in [gate["name"] for gate in made["spec"]["schedulingGates"]]

    ended: set[str] = set()
    while len(ended) < PODS_OF_A_TEAM * len(TEAMS):
        expected = min(AT_ONCE, PODS_OF_A_TEAM * len(TEAMS) - len(ended))
        running = cluster.wait_until(
            lambda count=expected: _running_pods(cluster, count),  # type: ignore[misc]
            ROUND_SECONDS,
            what=lambda: _describe(cluster),
        )
        _assert_within_quotas(running)
        ended |= {each["metadata"]["name"] for each in running}
        assert set(read_verb_calls(transcript)) == ended  # nothing was asked about those that are gated
        for each in running:
            _end_pod(cluster, each)

    filtered = [call for calls in read_verb_calls(transcript).values() for call in calls if call.verb == "filter"]
    assert [call.pod for call in filtered if call.request["Pod"]["spec"].get("schedulingGates")] == []
    assert len(filtered) == PODS_OF_A_TEAM * len(TEAMS)

    kueue.kill()
    plain = {"metadata": {"name": "plain"}, "spec": {"containers": [{"name": "main", "image": "example.com/plain:1"}]}}
    assert cluster.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", plain)[0] >= BAD_REQUEST
    assert cluster.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All", plain)[0] == CREATED


def _add_nodes(cluster: ControlPlane) -> None:
    for kind, (label, units) in MODELS.items():
        for number in range(NODES_OF_A_MODEL):
            name = f"{kind}-{number}"
            cards = [
                published_card(index, units=units, memory_mib=units * 1024, uuid=f"GPU-{name}-{index}", model=label)
                for index in range(CARDS_OF_A_NODE)
            ]
            cluster.add_node(name, cards=cards_annotation(*cards), labels={LABEL: label})


def _running_pods(cluster: ControlPlane, count: int) -> list[Json]:
    """`count` pods that are bound and have not ended, once no other is on its way to a node."""
    pods = _list_pods(cluster)
    let_go = [each for each in pods if not each["spec"].get("schedulingGates") and each["status"]["phase"] == "Pending"]
    return let_go if len(let_go) == count and all(each["spec"].get("nodeName") for each in let_go) else []


def _assert_within_quotas(running: list[Json]) -> None:
    models = Counter(each["spec"]["nodeName"].split("-")[0] for each in running)
    for model, count in models.items():
        assert count * UNITS <= QUOTAS[model]
    for each in running:
        label, _ = MODELS[each["spec"]["nodeName"].split("-")[0]]
        assert each["spec"]["nodeSelector"] == {LABEL: label}


def _list_pods(cluster: ControlPlane) -> list[Json]:
    return [each for team in TEAMS for each in cluster.request_ok("GET", f"/api/v1/namespaces/{team}/pods")["items"]]


def _end_pod(cluster: ControlPlane, pod: Json) -> None:
    """As kubelet reports it."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
    cluster.request_ok("PATCH", path, {"status": {"phase": "Succeeded"}}, content_type="application/merge-patch+json")


def _describe(cluster: ControlPlane) -> str:
    """How many pods are in which state: gated, bound, phase."""
    return str(
        Counter(
            (bool(each["spec"].get("schedulingGates")), "nodeName" in each["spec"], each["status"]["phase"])
            for each in _list_pods(cluster)
        )
    )
