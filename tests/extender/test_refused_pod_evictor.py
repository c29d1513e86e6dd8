"""Pods that agents refuse are evicted: when, which of them, how an API server may answer, and what a lying node can do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from extender.events import ExtenderEventRecorder
from extender.eviction.refused_pod_evictor import RefusedPodEvictor
from extender.metrics import ExtenderMetrics
from extender.state.ledger import Ledger
from extender.state.reported_refusals import ReportedRefusals
from tests.fakes.api import FakeKubeApi
from tests.support.builders import UNIT_MIB, ledger_pod
from tests.support.scripted_readiness import ScriptedReadiness
from vrampack.cards.pod import Pod
from vrampack.cards.refused_pods import write_refused
from vrampack.kube.errors import NoAnswerError, RefusedError

OWNED = {"ownerReferences": [{"kind": "ReplicaSet", "controller": True}]}
MIRROR = {
    "annotations": {"kubernetes.io/config.mirror": "x"},
    "ownerReferences": [{"kind": "Node", "controller": True}],
}


class EvictionApi(FakeKubeApi):
    """Pods by name, and evictions as it is told to answer them."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Exception] = []
        self.evicted: list[tuple[str, str, str]] = []

    async def get_pod_bytes(self, namespace: str, name: str, *, timeout_seconds: float) -> bytes | None:  # noqa: ARG002 - the real one's shape
        self.gets.append((namespace, name))
        pod = self.pods.get((namespace, name))
        return None if pod is None else json.dumps(pod).encode()

    async def evict(
        self,
        namespace: str,
        name: str,
        uid: str,
        *,
        timeout_seconds: float,  # noqa: ARG002 - the real one's shape
        is_dry_run: bool = False,
    ) -> None:
        assert not is_dry_run
        self.evicted.append((namespace, name, uid))
        if self.answers:
            raise self.answers.pop(0)


class EvictionEvents(ExtenderEventRecorder):
    """Remembers what it was to write."""

    def __init__(self, metrics: ExtenderMetrics) -> None:
        super().__init__(FakeKubeApi(), metrics, clock=lambda: 0.0, now=lambda: 0.0)
        self.told: list[tuple[str, str, str]] = []

    def record_pod_event(self, pod: Pod, reason: str, text: str, *, is_warning: bool = True) -> None:
        assert is_warning
        self.told.append((pod.name, reason, text))


class EvictorHarness:
    """An evictor with a clock of the test's own, a ledger and an API server of the same pods."""

    def __init__(self, *answers: Exception, is_called: bool = True, after_seconds: float | None = 30.0) -> None:
        self.now = 0.0
        self.api = EvictionApi()
        self.api.answers = list(answers)
        self.metrics = ExtenderMetrics("test")
        self.events = EvictionEvents(self.metrics)
        self.ledger = Ledger(unit_mib=UNIT_MIB, clock=lambda: self.now)
        self.refusals = ReportedRefusals(lambda: self.now)
        self.readiness = ScriptedReadiness()
        self.evictor = RefusedPodEvictor(
            self.refusals,
            self.ledger,
            self.api,
            self.events,
            self.metrics,
            readiness=self.readiness,
            is_called=lambda: is_called,
            clock=lambda: self.now,
            after_seconds=after_seconds,
        )

    def add_pod(self, pod: Pod, **metadata: object) -> None:
        """Of the ledger and of the API server; with a controller unless `metadata` says otherwise."""
        self.ledger.update_pod(pod)
        raw = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, **(metadata or OWNED)}
        self.api.pods[pod.namespace, pod.name] = {"metadata": raw, "spec": {"nodeName": pod.node_name}}

    def report(self, *uids: str, node: str = "n") -> None:
        self.refusals.update_node(node, write_refused(dict.fromkeys(uids, "no_record")) if uids else None)

    async def at(self, *seconds: float) -> list[int]:
        """How many evictions were asked for after a round at each of these times."""
        counts = []
        for self.now in seconds:
            await self.evictor.evict_due_pods()
            counts.append(len(self.api.evicted))
        return counts

    def count_results(self) -> dict[str, float]:
        (family,) = self.metrics.evictions.collect()
        return {
            each.labels["result"]: each.value
            for each in family.samples
            if each.name == "vrampack_evictions_total" and each.value
        }


def refused(**options: object) -> EvictorHarness:
    """One pod of node `n`, which the node names from second 0 on."""
    stage = EvictorHarness(**options)  # type: ignore[arg-type]  # passed on
    stage.add_pod(ledger_pod("p", node="n"))
    stage.report("p")
    return stage


async def test_a_refused_pod_is_evicted_by_uid_after_its_report_has_lasted() -> None:
    stage = refused()
    assert await stage.at(29.9, 30) == [0, 1]
    assert stage.api.evicted == [("default", "p", "p")]
    assert stage.events.told == [
        ("p", "GPUMemoryEvicted", "refused on node n (no_record): evicted, so that its replacement is placed again")
    ]
    assert stage.count_results() == {"evicted": 1}


async def test_an_evicted_pod_is_not_evicted_again_while_it_terminates() -> None:
    stage = refused()
    assert await stage.at(30, 60, 3600) == [1, 1, 1]


RUNNING: Mapping[str, Any] = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}
WAITING: Mapping[str, Any] = {"containerStatuses": [{"name": "main", "state": {"waiting": {}}}]}
STATES = {
    "it started after all, and its agent has not said so": (RUNNING, "cdi", 0),
    "it waits": (WAITING, "cdi", 1),
    "its sidecar waits": ({**RUNNING, "initContainerStatuses": [{"name": "side"}]}, "cdi", 1),
    "it runs, and that is the reason": (RUNNING, "over_limit", 1),
}


@pytest.mark.parametrize(("status", "reason", "evictions"), STATES.values(), ids=STATES)
async def test_a_pod_that_runs_is_evicted_only_for_what_it_does(
    status: Mapping[str, Any], reason: str, evictions: int
) -> None:
    stage = refused()
    pod = stage.api.pods["default", "p"]
    pod["status"] = status
    pod["spec"]["containers"] = [{"name": "main"}]
    pod["spec"]["initContainers"] = [
        {"name": each["name"], "restartPolicy": "Always"} for each in status.get("initContainerStatuses", [])
    ]
    stage.refusals.update_node("n", write_refused({"p": reason}))
    assert await stage.at(30, 60) == [evictions, evictions]


async def test_a_withdrawn_report_restarts_the_clock() -> None:
    """The pod started after all; a later report is another refusal."""
    stage = refused()
    assert await stage.at(20) == [0]
    stage.report()
    assert await stage.at(30) == [0]
    stage.report("p")
    assert await stage.at(59, 60) == [0, 1]


async def test_another_pod_in_the_report_does_not_restart_the_clock() -> None:
    stage = refused()
    stage.now = 29.0
    stage.report("p", "q")
    assert await stage.at(30) == [1]


async def test_an_extender_that_no_scheduler_calls_waits_a_minute_longer() -> None:
    """Two extenders see every report; alone on a quiet cluster it evicts all the same."""
    stage = EvictorHarness(is_called=False)
    stage.add_pod(ledger_pod("p", node="n"))
    stage.report("p")
    assert await stage.at(30, 89.9, 90) == [0, 0, 1]


async def test_no_pod_is_evicted_without_the_setting() -> None:
    stage = EvictorHarness(after_seconds=None)
    stage.add_pod(ledger_pod("p", node="n"))
    stage.report("p")
    assert await stage.at(3600) == [0]


async def test_an_extender_that_is_not_ready_evicts_no_pod() -> None:
    """Its ledger may be of yesterday."""
    stage = refused()
    stage.readiness.problem = "stale"
    assert await stage.at(30) == [0]
    stage.readiness.problem = ""
    assert await stage.at(31) == [1]


NOT_ITS_OWN = {
    "a pod of another node": ledger_pod("p", node="elsewhere"),
    "a pod that waits": ledger_pod("p"),
    "a pod that asks for nothing": replace(ledger_pod("p", node="n"), request=None),
    "a pod that leaves": ledger_pod("p", node="n", leaving=True),
    "a pod that is finished": ledger_pod("p", node="n", finished=True),
}


@pytest.mark.parametrize("pod", NOT_ITS_OWN.values(), ids=NOT_ITS_OWN)
async def test_a_node_can_report_only_its_own_pods(pod: Pod) -> None:
    """Nor is the API server asked about it."""
    stage = EvictorHarness()
    stage.add_pod(pod)
    stage.report("p")
    assert await stage.at(3600) == [0]
    assert stage.api.gets == []


async def test_a_pod_that_the_api_server_shows_elsewhere_is_left_alone() -> None:
    """The ledger may lag: the name of a StatefulSet's pod lives on under another uid and on another node."""
    stage = refused()
    stage.api.pods["default", "p"]["metadata"]["uid"] = "another"
    assert await stage.at(30) == [0]
    stage.api.pods["default", "p"] = {"metadata": {"uid": "p", **OWNED}, "spec": {"nodeName": "elsewhere"}}
    assert await stage.at(60) == [0]


@pytest.mark.parametrize("metadata", [{"labels": {}}, MIRROR], ids=["bare", "mirror"])
async def test_a_pod_that_no_controller_recreates_is_kept_and_gets_one_event(metadata: dict[str, object]) -> None:
    stage = EvictorHarness()
    stage.add_pod(ledger_pod("p", node="n"), **metadata)
    stage.report("p")
    assert await stage.at(30, 60, 3600) == [0, 0, 0]
    (told,) = stage.events.told
    assert told[1] == "GPUMemoryNotEvicted"
    assert stage.count_results() == {"kept": 1}


async def test_a_blocking_disruption_budget_is_retried_with_backoff_and_reported_once() -> None:
    """10 s, then 20, then 40."""
    stage = EvictorHarness(*[RefusedError(429, "TooManyRequests", "needs 3 pods")] * 3)
    stage.add_pod(ledger_pod("p", node="n"))
    stage.report("p")
    assert await stage.at(30, 39, 40, 59, 60, 99, 100) == [1, 1, 2, 2, 3, 3, 4]
    assert [reason for _, reason, _ in stage.events.told] == ["GPUMemoryNotEvicted", "GPUMemoryEvicted"]
    assert stage.count_results() == {"budget": 3, "evicted": 1}


async def test_an_eviction_is_retried_no_sooner_than_the_api_server_asks() -> None:
    stage = EvictorHarness(RefusedError(429, "TooManyRequests", "later", retry_after_seconds=30))
    stage.add_pod(ledger_pod("p", node="n"))
    stage.report("p")
    assert await stage.at(30, 59, 75) == [1, 1, 2]


PASSING = {
    "no answer": NoAnswerError("timed out"),
    "an error of the server": RefusedError(500, "InternalError", "etcd"),
}


@pytest.mark.parametrize("answer", PASSING.values(), ids=PASSING)
async def test_a_transient_eviction_error_is_retried(answer: Exception) -> None:
    stage = EvictorHarness(answer)
    stage.add_pod(ledger_pod("p", node="n"))
    stage.report("p")
    assert await stage.at(30, 39, 40) == [1, 1, 2]
    assert stage.count_results() == {"failed": 1, "evicted": 1}


async def test_a_persistently_failing_api_server_is_reported_once() -> None:
    """As it does where two disruption budgets cover one pod: it answers 500 to every such eviction."""
    stage = EvictorHarness(*[NoAnswerError("500: more than one PodDisruptionBudget")] * 4)
    stage.add_pod(ledger_pod("p", node="n"))
    stage.report("p")
    assert await stage.at(30, 40) == [1, 2]
    assert stage.events.told == []
    assert await stage.at(60, 100) == [3, 4]
    assert [reason for _, reason, _ in stage.events.told] == ["GPUMemoryNotEvicted"]
    assert stage.events.told[0][2].endswith(
        "the API server fails to evict it; the extender tries again: 500: more than one PodDisruptionBudget"
    )


GONE = {"gone": RefusedError(404, "NotFound", "p"), "another one": RefusedError(409, "Conflict", "uid")}


@pytest.mark.parametrize("answer", GONE.values(), ids=GONE)
async def test_the_eviction_of_a_pod_that_is_gone_is_not_retried_soon(answer: Exception) -> None:
    stage = EvictorHarness(answer)
    stage.add_pod(ledger_pod("p", node="n"))
    stage.report("p")
    assert await stage.at(30, 60, 329) == [1, 1, 1]
    assert stage.events.told == []
    assert await stage.at(330) == [2], "a conflict that passed"


async def test_a_node_that_refuses_all_its_pods_is_emptied_slowly_and_separately() -> None:
    """One every five seconds; another node does not wait for it."""
    stage = EvictorHarness()
    for node in ("n", "m"):
        names = [f"{node}{at}" for at in range(4)]
        for name in names:
            stage.add_pod(ledger_pod(name, node=node))
        stage.report(*names, node=node)
    assert await stage.at(30, 34, 35, 40) == [2, 2, 4, 6]


async def test_simultaneous_reports_of_all_nodes_do_not_empty_the_cluster() -> None:
    stage = EvictorHarness()
    for at in range(12):
        stage.add_pod(ledger_pod(f"p{at}", node=f"n{at}"))
        stage.report(f"p{at}", node=f"n{at}")
    assert await stage.at(30, 31, 32, 33) == [5, 10, 12, 12]


async def test_reports_of_a_deleted_node_are_ignored() -> None:
    stage = refused()
    stage.refusals.remove_node("n")
    assert await stage.at(3600) == [0]
