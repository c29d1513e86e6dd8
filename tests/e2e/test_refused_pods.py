"""A pod that the agent of its node refuses is evicted by the extender, with its own account, unless a disruption budget forbids it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.e2e.in_cluster import EXTENDER, ExtenderProgram, installed_configuration
from tests.e2e.verb_calls import count_pending_pods, post_bind, post_verb, read_metric
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card
from vrampack.cards import well_known
from vrampack.cards.refused_pods import write_refused

SOON = "\nrefused: {evict_after_seconds: 0.5}\n"
NODE = "gpu-0"
MERGE = "application/merge-patch+json"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
RETRIED_SECONDS = 30
"""The first try after the one that a budget refused comes 10 s later."""


def run_pod(cluster: ControlPlane, ours: ExtenderProgram, pod: Any) -> None:  # noqa: ANN401 - as the API server holds it
    """Bound by the extender, and ready as kubelet would say: for a pending pod the API server consults no budget."""
    cluster.wait_until(lambda: count_pending_pods(ours) == 1, what="the extender saw the pod")
    post_verb(ours, "filter", {"Pod": pod, "NodeNames": [NODE]})
    assert post_bind(ours, pod, NODE) == ""
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    path = f"{PODS}/{pod['metadata']['name']}/status"
    cluster.request_ok("PATCH", path, {"status": ready}, content_type=MERGE)


def read_reasons(cluster: ControlPlane, name: str) -> set[str]:
    events = cluster.request_ok("GET", f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}")
    return {event["reason"] for event in events["items"]}


def test_a_refused_pod_is_evicted_unless_a_disruption_budget_forbids_it(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram]
) -> None:
    cluster.add_node(NODE, cards=cards_annotation(published_card(0)))
    ours = extender(configuration=installed_configuration(cluster, EXTENDER) + SOON)
    labels = {"app": "tenant"}
    template = pod_manifest("unused", 4)
    workload = {
        "metadata": {"name": "tenant"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    }
    cluster.request_ok("POST", "/apis/apps/v1/namespaces/default/replicasets", workload)
    listed = cluster.wait_until(lambda: cluster.request_ok("GET", PODS)["items"], what="its pod is made")
    (pod,) = listed
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    run_pod(cluster, ours, pod)
    budget = {"metadata": {"name": "never"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}}
    cluster.request_ok("POST", BUDGETS, budget)
    cluster.wait_until(
        lambda: cluster.request_ok("GET", f"{BUDGETS}/never").get("status", {}).get("currentHealthy") == 1,
        what="the budget counts it",
    )

    named = {"metadata": {"annotations": {well_known.NODE_REFUSED: write_refused({uid: "no_record"})}}}
    cluster.request_ok("PATCH", f"/api/v1/nodes/{NODE}", named, content_type=MERGE)
    cluster.wait_until(
        lambda: "GPUMemoryNotEvicted" in read_reasons(cluster, name), RETRIED_SECONDS, what="the budget holds it"
    )
    assert "deletionTimestamp" not in cluster.request_ok("GET", f"{PODS}/{name}")["metadata"]
    assert read_metric(ours, 'vrampack_evictions_total{result="evicted"}') == 0

    cluster.request_ok("DELETE", f"{BUDGETS}/never")
    cluster.wait_until(lambda: "GPUMemoryEvicted" in read_reasons(cluster, name), RETRIED_SECONDS, what="it is evicted")
    cluster.wait_until(
        lambda: {each["metadata"]["uid"] for each in cluster.request_ok("GET", PODS)["items"]} - {uid},
        what="another one is made",
    )
