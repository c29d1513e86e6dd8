"""Preemption by the real scheduler: the victims it chooses by totals free one card, or no pod is evicted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from extender.metrics import PREEMPT_RESULTS
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.pod_placements import list_places, read_refusal, run_pods, wait_until_bound
from tests.e2e.verb_calls import read_metric
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import (
    PODS,
    RESOURCE,
    cards_annotation,
    pod_manifest,
    published_card,
    read_allocation_record,
)

Start = Callable[..., Any]
PRIORITIES = {"low": 1, "middle": 10, "high": 1000, "patient": 1000}
"""All but the last may preempt."""


def priority_classes(cluster: ControlPlane) -> None:
    for name, value in PRIORITIES.items():
        policy = "Never" if name == "patient" else "PreemptLowerPriority"
        cluster.add_priority_class(name, value, preemptionPolicy=policy)


def ranked(name: str, units: int, priority: str) -> dict[str, Any]:
    pod = pod_manifest(name, units)
    pod["spec"]["priorityClassName"] = priority
    return pod


def answers(running: ExtenderProgram) -> dict[str, float]:
    """Preempt calls so far, by result."""
    counts = {each: read_metric(running, f'vrampack_preempt_total{{result="{each}"}}') for each in PREEMPT_RESULTS}
    return {each: count for each, count in counts.items() if count}


def names(cluster: ControlPlane) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in cluster.request_ok("GET", PODS)["items"])


def nominations(cluster: ControlPlane, name: str, since: str) -> set[str]:
    """Every `nominatedNodeName` that the pod has had."""
    path = f"{PODS}?watch=true&resourceVersion={since}&timeoutSeconds=1&fieldSelector=metadata.name={name}"
    events = [json.loads(line) for line in cluster.kubectl("get", "--raw", path).stdout.splitlines()]
    return {event["object"]["status"]["nominatedNodeName"] for event in events if _is_nominated(event["object"])}


def _is_nominated(pod: dict[str, Any]) -> bool:
    return bool(pod["status"].get("nominatedNodeName"))


def preempted(cluster: ControlPlane, urgent: dict[str, Any]) -> Any:  # noqa: ANN401 - the pod as the API server holds it
    """Create it and wait until it is bound to the node that it was nominated to."""
    name = urgent["metadata"]["name"]
    since = cluster.request_ok("POST", PODS, urgent)["metadata"]["resourceVersion"]
    pod = wait_until_bound(cluster, name)
    assert nominations(cluster, name, since) == {pod["spec"]["nodeName"]}
    return pod


def test_a_pod_of_high_priority_takes_the_card_of_lower_ones(
    cluster: ControlPlane, extender: Start, scheduler: Start
) -> None:
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0)))
    priority_classes(cluster)
    running = extender()
    scheduler()
    run_pods(cluster, ranked("small", 4, "low"), ranked("large", 11, "middle"))

    urgent = preempted(cluster, ranked("urgent", 12, "high"))

    assert list_places([urgent]) == [("gpu-0", [0])]
    assert read_allocation_record(urgent)["cards"][0]["units"] == 12
    assert names(cluster) == ["urgent"]  # 15 - 12 leave 3: neither 4 nor 11 could stay
    assert answers(running) == {"ok": 1}


def test_victims_on_two_cards_are_extended_until_one_card_is_free(
    cluster: ControlPlane, extender: Start, scheduler: Start
) -> None:
    """Both cards hold 8 + 7 of 15. For 14 the scheduler takes the two of lower priority, 7 from each card."""
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0), published_card(1)))
    priority_classes(cluster)
    running = extender()
    scheduler()
    filling = [("a", 8, "middle"), ("b", 7, "low"), ("c", 8, "middle"), ("d", 7, "low")]
    made = run_pods(cluster, *(ranked(*each) for each in filling))
    assert list_places(made) == [("gpu-0", [0]), ("gpu-0", [0]), ("gpu-0", [1]), ("gpu-0", [1])]

    urgent = preempted(cluster, ranked("urgent", 14, "high"))

    spared = [name for name in names(cluster) if name != "urgent"]
    assert len(spared) == 1  # b, d, and one of a and c: no more than one card needs
    (kept,) = [pod for pod in made if pod["metadata"]["name"] == spared[0]]
    assert spared[0] in {"a", "c"}
    assert read_allocation_record(urgent)["cards"][0]["index"] != read_allocation_record(kept)["cards"][0]["index"]
    assert answers(running) == {"added": 1}


def test_pod_that_fits_the_totals_but_no_card_evicts_no_pod(
    cluster: ControlPlane, extender: Start, scheduler: Start
) -> None:
    """4 units are free on each of two cards, 8 in all: the totals fit, so the scheduler has no pod to evict."""
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0), published_card(1)))
    priority_classes(cluster)
    running = extender()
    scheduler()
    run_pods(cluster, ranked("a", 11, "low"), ranked("b", 11, "low"))
    cluster.request_ok("POST", PODS, ranked("urgent", 8, "high"))

    cluster.wait_until(lambda: "preemption" in read_refusal(cluster, "urgent"), what="a preemption was tried")

    assert "no card with enough free memory" in read_refusal(cluster, "urgent")
    assert names(cluster) == ["a", "b", "urgent"]
    assert not _is_nominated(cluster.request_ok("GET", f"{PODS}/urgent"))
    assert answers(running) == {}


def test_a_node_whose_cards_are_too_small_loses_no_pod(
    cluster: ControlPlane, extender: Start, scheduler: Start
) -> None:
    """Evicting both would free 30 units of a node and 15 of a card: the totals for 16 would be there, the card not."""
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0), published_card(1)))
    priority_classes(cluster)
    running = extender()
    scheduler()
    run_pods(cluster, ranked("a", 15, "low"), ranked("b", 15, "low"))
    cluster.request_ok("POST", PODS, ranked("urgent", 16, "high"))

    cluster.wait_until(lambda: "preemption" in read_refusal(cluster, "urgent"), what="a preemption was tried")

    assert names(cluster) == ["a", "b", "urgent"]
    assert not _is_nominated(cluster.request_ok("GET", f"{PODS}/urgent"))
    assert answers(running) == {"no": 1}


def test_equal_priorities_and_pods_that_may_not_preempt_evict_no_pod(
    cluster: ControlPlane, extender: Start, scheduler: Start
) -> None:
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0)))
    priority_classes(cluster)
    extender()
    scheduler()
    run_pods(cluster, ranked("a", 15, "middle"))
    for pod in (ranked("equal", 8, "middle"), ranked("never", 8, "patient")):
        cluster.request_ok("POST", PODS, pod)

    def are_refused() -> bool:
        return all(f"Insufficient {RESOURCE}" in read_refusal(cluster, name) for name in ("equal", "never"))

    cluster.wait_until(are_refused, what="both are refused")
    assert names(cluster) == ["a", "equal", "never"]
