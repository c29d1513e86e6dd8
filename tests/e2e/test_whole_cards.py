"""Whole cards cost what they hold: by a real quota, for the real scheduler's preemption, and after an upgrade."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.in_cluster import EXTENDER_PORT
from tests.e2e.pod_placements import Start, list_places, read_refusal, run_pods, wait_until_bound
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, RESOURCE, cards_annotation, pod_manifest, published_card

WHOLE = {"ack.gpushare.placement": "require-whole-device"}
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
EVENTS = "/api/v1/namespaces/default/events"
HEAD = "apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\n"


def whole_card_pod(name: str, units: int) -> dict[str, Any]:
    return pod_manifest(name, units, labels=WHOLE)


def wait_refused(cluster: ControlPlane, name: str, reason: str) -> None:
    cluster.wait_until(lambda: reason in read_refusal(cluster, name), what=lambda: read_refusal(cluster, name))


def read_events(cluster: ControlPlane, name: str) -> dict[str, str]:
    """The messages of the pod's events by their reasons."""
    items = cluster.request_ok("GET", f"{EVENTS}?fieldSelector=involvedObject.name={name}")["items"]
    return {event["reason"]: event["message"] for event in items}


@pytest.fixture
def quota(cluster: ControlPlane) -> Iterator[None]:
    """16 units for the namespace."""
    spec = {"hard": {f"requests.{RESOURCE}": "16"}}
    cluster.request_ok("POST", QUOTAS, {"metadata": {"name": "gpu"}, "spec": spec})
    cluster.wait_until(lambda: "hard" in cluster.request_ok("GET", f"{QUOTAS}/gpu")["status"], what="it is counted")
    yield
    cluster.request_ok("DELETE", f"{QUOTAS}/gpu")


@pytest.mark.usefixtures("quota")
def test_a_quota_counts_all_of_a_whole_card(cluster: ControlPlane, extender: Start, scheduler: Start) -> None:
    """A quota of 16 of the 30 units: it used to hand out both cards to pods that asked for 1."""
    model = "Tesla V100-SXM2-16GB"
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0, model=model), published_card(1, model=model)))
    extender()
    scheduler()

    cluster.request_ok("POST", PODS, whole_card_pod("cheap", 1))
    wait_refused(cluster, "cheap", "1 whole card asks for too little")
    text = f"it asks for 1 unit for a whole card; ask for all of their units: {model} 15"
    cluster.wait_until(
        lambda: read_events(cluster, "cheap").get("GPUMemoryWholeCardUnpaid") == text,
        what=lambda: f"the event says what to ask for: {read_events(cluster, 'cheap')}",
    )
    assert list_places(run_pods(cluster, whole_card_pod("paying", 15))) == [("gpu-0", [0])]
    status, answer = cluster.request("POST", PODS, whole_card_pod("beyond", 15))
    assert (status, "exceeded quota: gpu" in answer["message"]) == (403, True)


@pytest.mark.parametrize("units", [8, 15])
def test_a_pod_of_high_priority_evicts_one_that_holds_a_whole_card(
    cluster: ControlPlane, extender: Start, scheduler: Start, units: int
) -> None:
    """It used to wait for ever, since for the scheduler 14 of 15 units were free."""
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0)))
    for name, value in {"low": 1, "high": 1000}.items():
        cluster.add_priority_class(name, value)
    extender()
    scheduler()
    holding = whole_card_pod("holding", 15)
    holding["spec"]["priorityClassName"] = "low"
    run_pods(cluster, holding)

    urgent = pod_manifest("urgent", units) if units == 8 else whole_card_pod("urgent", units)
    urgent["spec"]["priorityClassName"] = "high"
    cluster.request_ok("POST", PODS, urgent)

    assert list_places([wait_until_bound(cluster, "urgent")]) == [("gpu-0", [0])]


def test_an_upgrade_does_not_change_what_running_pods_rely_on(
    cluster: ControlPlane, extender: Start, scheduler: Start
) -> None:
    """Until somebody sets it: then the running pods stay, and a new one must pay."""
    cluster.add_node("gpu-0", cards=cards_annotation(*(published_card(index) for index in range(3))))
    before = extender(fronted=False, port=EXTENDER_PORT, configuration=HEAD + "rules: {whole_cards: as-requested}\n")
    scheduler()
    run_pods(cluster, whole_card_pod("first", 1))
    before.process.stop()

    unset = extender(fronted=False, port=EXTENDER_PORT, configuration=HEAD)
    assert list_places(run_pods(cluster, whole_card_pod("second", 1))) == [("gpu-0", [1])]
    log = unset.process.log_path.read_text()
    assert "whole cards as requested" in log
    assert "pod default/first holds 15 units and asks for 1" in log
    unset.process.stop()

    extender(fronted=False, port=EXTENDER_PORT, configuration=HEAD + "rules: {whole_cards: paid}\n")
    cluster.request_ok("POST", PODS, whole_card_pod("third", 1))
    wait_refused(cluster, "third", "1 whole card asks for too little")
    assert {pod["metadata"]["name"] for pod in cluster.request_ok("GET", PODS)["items"]} == {"first", "second", "third"}
