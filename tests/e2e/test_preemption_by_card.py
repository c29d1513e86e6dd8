"""Preemption by card with the real scheduler: where a node's totals fit and no card does, which it never preempts for by itself.

`VRAMPACK_PREEMPTION_KILLS` says how many parts are killed meanwhile (3), `VRAMPACK_SEED` repeats a run: every run prints its seed.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any

import pytest

from tests.e2e.auditing import assert_never_oversold, wait_until_recounted
from tests.e2e.in_cluster import EXTENDER, ExtenderProgram, installed_configuration
from tests.e2e.part_kills import UNELECTED, MortalParts, draw_parts
from tests.e2e.pod_placements import list_places, run_pods, wait_until_bound
from tests.e2e.release_shape import start_release
from tests.e2e.shipped_leases import install_leases
from tests.e2e.verb_calls import read_metric
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card

Start = Callable[..., Any]
TRIALS = int(os.environ.get("VRAMPACK_PREEMPTION_KILLS", "3"))
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
MERGE = "application/merge-patch+json"
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
SERVED_SECONDS = 60
"""A new process may have to wait 15 s for the Lease of the one before."""
GRACE_SECONDS = 1.0
"""How long victims take to end, in place of a kubelet."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Instead of the suite's own: of the release that `VRAMPACK_KUBERNETES` names."""
    with start_release(tmp_path_factory.mktemp("preemption")) as running:
        yield running


def ranked(name: str, units: int, priority: str, **labels: str) -> dict[str, Any]:
    pod = pod_manifest(name, units, labels=labels)
    pod["spec"] |= {"priorityClassName": priority, "terminationGracePeriodSeconds": 30}
    return pod


def configure(cluster: ControlPlane, by_card: str, **settings: object) -> str:
    lines = "".join(f"  {name}: {value}\n" for name, value in settings.items())
    return installed_configuration(cluster, EXTENDER) + f"\npreemption:\n  by_card: {by_card}\n{lines}"


def prepare(cluster: ControlPlane, nodes: Iterable[str] = ("gpu-0",)) -> None:
    for name in nodes:
        cards = (published_card(index, uuid=f"{name}-{index}") for index in (0, 1))
        cluster.add_node(name, cards=cards_annotation(*cards, injection="cdi"))
    for name, value in {"low": 1, "middle": 10, "high": 1000}.items():
        cluster.add_priority_class(name, value)
    install_leases(cluster)


def read_events(cluster: ControlPlane, name: str) -> set[str]:
    events = cluster.request_ok("GET", f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}")
    return {event["reason"] for event in events["items"]}


def list_ending(cluster: ControlPlane) -> list[str]:
    pods = cluster.request_ok("GET", PODS)["items"]
    return sorted(pod["metadata"]["name"] for pod in pods if "deletionTimestamp" in pod["metadata"])


def end_pod(cluster: ControlPlane, name: str) -> None:
    """As its kubelet does once the containers have ended."""
    cluster.request_ok("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})


def test_plan_tells_and_evicts_no_pod(cluster: ControlPlane, extender: Start, scheduler: Start) -> None:
    prepare(cluster)
    running = extender(configuration=configure(cluster, "plan"))
    scheduler()
    run_pods(cluster, ranked("a", 11, "low"), ranked("b", 11, "low"))
    cluster.request_ok("POST", PODS, ranked("urgent", 8, "high"))
    cluster.wait_until(
        lambda: "GPUMemoryPreemptionPlanned" in read_events(cluster, "urgent"), what="the plan is an event"
    )
    assert list_ending(cluster) == []
    assert read_metric(running, 'vrampack_card_preemptions_total{result="planned"}') == 1


@pytest.mark.smoke
def test_act_evicts_by_budget_and_keeps_the_card_from_a_stream_of_lesser_pods(
    cluster: ControlPlane, extender: Start, scheduler: Start
) -> None:
    """On gpu-0 the pods are less important, and a budget protects them: one of gpu-1 goes."""
    prepare(cluster, ["gpu-0", "gpu-1"])
    running = extender(configuration=configure(cluster, "act"))
    scheduler()
    labels = {"app": "protected"}
    filling = [ranked("a", 11, "low", **labels), ranked("b", 11, "low", **labels)]
    filling += [ranked("c", 11, "middle"), ranked("d", 11, "middle")]
    for pod, node in zip(filling, ("gpu-0", "gpu-0", "gpu-1", "gpu-1"), strict=True):
        pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    run_pods(cluster, *filling)
    for name in ("a", "b"):
        cluster.request_ok("PATCH", f"{PODS}/{name}/status", {"status": READY}, content_type=MERGE)
    budget = {"metadata": {"name": "never"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": labels}}}
    cluster.request_ok("POST", BUDGETS, budget)
    cluster.wait_until(
        lambda: cluster.request_ok("GET", f"{BUDGETS}/never").get("status", {}).get("currentHealthy") == 2,
        what="the budget counts them",
    )
    cluster.request_ok("POST", PODS, ranked("urgent", 8, "high"))
    (victim,) = cluster.wait_until(lambda: list_ending(cluster), what="a pod is evicted")
    for number in range(5):
        cluster.request_ok("POST", PODS, ranked(f"thief-{number}", 8, "low"))
    end_pod(cluster, victim)
    urgent = wait_until_bound(cluster, "urgent")
    assert victim in {"c", "d"}
    assert list_places([urgent])[0][0] == "gpu-1"
    assert {"GPUMemoryPreempted"} <= read_events(cluster, victim)
    pods = cluster.request_ok("GET", PODS)["items"]
    assert not [pod for pod in pods if pod["metadata"]["name"].startswith("thief") and "nodeName" in pod["spec"]]
    cluster.wait_until(
        lambda: read_metric(running, 'vrampack_card_preemptions_total{result="served"}') == 1, what="it is counted"
    )


@pytest.mark.smoke
@pytest.mark.timeout(60 + 90 * TRIALS)
def test_no_victim_dies_in_vain_when_a_part_is_killed(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram], scheduler: Start
) -> None:
    """Beside five lesser pods that wait for any free card. The victims take a while to end."""
    seed = int(os.environ.get("VRAMPACK_SEED", secrets.randbits(32)))
    sys.stdout.write(f"VRAMPACK_SEED={seed} VRAMPACK_PREEMPTION_KILLS={TRIALS}\n")
    random = Random(seed)
    prepare(cluster)
    settings = dict.fromkeys(("max_evictions_per_hour", "max_evictions_per_namespace_per_hour"), 1000)
    parts = MortalParts(
        cluster, extender(configuration=configure(cluster, "act", **settings)), scheduler(flags=UNELECTED)
    )
    with assert_never_oversold(cluster):
        for trial, part in enumerate(draw_parts(random, TRIALS)):
            run_pods(cluster, ranked(f"a-{trial}", 11, "low"), ranked(f"b-{trial}", 11, "low"))
            for number in range(5):
                cluster.request_ok("POST", PODS, ranked(f"thief-{trial}-{number}", 8, "low"))
            cluster.request_ok("POST", PODS, ranked(f"urgent-{trial}", 8, "high"))
            delay = random.uniform(0, 5)
            sys.stdout.write(f"trial={trial} killed={part} after={delay:.2f}\n")
            ended = end_victims_until(cluster, time.monotonic() + delay)
            parts.kill_and_start(part)
            if part == "extender":
                # The scheduler tries the pod again, as it does after its flush.
                note = {"metadata": {"annotations": {"example.com/trial": str(trial)}}}
                cluster.request_ok("PATCH", f"{PODS}/urgent-{trial}", note, content_type=MERGE)
            ended |= end_victims_until_bound(cluster, f"urgent-{trial}")
            assert len(ended) == 1, ended
            assert list_bound(cluster) == {f"urgent-{trial}", *(f"{name}-{trial}" for name in "ab")} - ended
            wait_until_recounted(cluster, parts.extender)
            assert read_metric(parts.extender, 'vrampack_card_preemptions_total{result="in_vain"}') == 0
            for pod in cluster.request_ok("GET", PODS)["items"]:
                end_pod(cluster, pod["metadata"]["name"])


def list_bound(cluster: ControlPlane) -> set[str]:
    return {pod["metadata"]["name"] for pod in cluster.request_ok("GET", PODS)["items"] if "nodeName" in pod["spec"]}


def end_victims_until(cluster: ControlPlane, deadline: float) -> set[str]:
    """The pods that were evicted and ended in this time."""
    seen: dict[str, float] = {}
    while time.monotonic() < deadline:
        end_due_pods(cluster, seen)
    return set(seen)


def end_victims_until_bound(cluster: ControlPlane, name: str) -> set[str]:
    seen: dict[str, float] = {}

    def is_bound() -> bool:
        end_due_pods(cluster, seen)
        return "nodeName" in cluster.request_ok("GET", f"{PODS}/{name}")["spec"]

    cluster.wait_until(is_bound, SERVED_SECONDS, what=f"{name} is bound")
    if seen:
        waited = time.monotonic() - max(seen.values()) - GRACE_SECONDS
        sys.stdout.write(f"bound_after_last_victim={waited:.2f}\n")
    return set(seen)


def end_due_pods(cluster: ControlPlane, seen: dict[str, float]) -> None:
    for name in list_ending(cluster):
        if time.monotonic() - seen.setdefault(name, time.monotonic()) > GRACE_SECONDS:
            end_pod(cluster, name)
