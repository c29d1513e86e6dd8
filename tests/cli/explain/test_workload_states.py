"""What `explain` says of Jobs that want no pod, and of Deployments that change over to another template."""

from __future__ import annotations

import json
from typing import cast

import pytest

from tests.cli.explain.objects import Object
from vrampack.cli.explain.schema import WorkloadExplanation
from vrampack.cli.explain.workload import DEPLOYMENTS, JOBS, WorkloadKind, explain_workload, read_workload
from vrampack.kube.diagnostic_client import DiagnosticApi

LISTS = {
    "jobs": "JobList",
    "deployments": "DeploymentList",
    "replicasets": "ReplicaSetList",
    "pods": "PodList",
    "events": "EventList",
}


class ListedApi:
    """Answers lists from these objects, by the plural of their kind."""

    def __init__(self, **objects: list[Object]) -> None:
        self._objects = objects

    async def read_list_page(self, path: str, **_: object) -> bytes:
        plural = path.rpartition("/")[2]
        items = self._objects.get(plural, [])
        return json.dumps({"kind": LISTS[plural], "metadata": {"resourceVersion": "1"}, "items": items}).encode()


async def explain(kind: WorkloadKind, **objects: list[Object]) -> WorkloadExplanation:
    api = cast("DiagnosticApi", ListedApi(**objects))  # it lists, and nothing else is called
    return explain_workload(await read_workload(api, kind, "ml", "train"), None)


def owned(name: str, kind: str = "Job", owner: str = "train", **more: object) -> Object:
    references = [{"kind": kind, "name": owner, "controller": True}]
    return {"metadata": {"name": name, "namespace": "ml", "ownerReferences": references}, **more}


def condition(kind: str, reason: str = "") -> Object:
    return {"type": kind, "status": "True", "reason": reason}


DONE = owned("train-0", status={"phase": "Succeeded"})
RUNS = owned("train-1", spec={"nodeName": "n"}, status={"phase": "Running"})
JOBS_AT_REST = {
    "finished": (
        {"parallelism": 1, "completions": 1},
        {"succeeded": 1, "conditions": [condition("Complete")]},
        [DONE],
        "wants 0 and has none of its pods: it is finished.",
    ),
    "failed": (
        {"parallelism": 1, "completions": 1},
        {"failed": 7, "conditions": [condition("Failed", "BackoffLimitExceeded")]},
        [],
        "wants 0 and has none of its pods: it failed: BackoffLimitExceeded.",
    ),
    "suspended": (
        {"parallelism": 2, "completions": 2, "suspend": True},
        {"conditions": [condition("Suspended")]},
        [],
        "wants 0 and has none of its pods: it is suspended; whatever suspended it must resume it.",
    ),
    "the last completion": (
        {"parallelism": 4, "completions": 4},
        {"succeeded": 3, "active": 1},
        [DONE, RUNS],
        "wants 1 and has 1 of its pods.",
    ),
    "a work queue that runs dry": (
        {"parallelism": 4},
        {"succeeded": 3, "active": 1},
        [DONE, RUNS],
        "wants 1 and has 1 of its pods.",
    ),
}


@pytest.mark.parametrize(("spec", "status", "pods", "headline"), JOBS_AT_REST.values(), ids=JOBS_AT_REST)
async def test_a_job_that_needs_no_further_pod_is_not_waited_for(
    spec: Object, status: Object, pods: list[Object], headline: str
) -> None:
    said = await explain(JOBS, jobs=[{"metadata": {"name": "train"}, "spec": spec, "status": status}], pods=pods)
    assert (said.headline, said.next) == (f"Job ml/train {headline}", "")


async def test_a_rollout_whose_new_pods_are_refused_is_explained() -> None:
    """The old pods are as many as wanted, and an event of the set that has its pods is of the past."""
    said = await explain(
        DEPLOYMENTS,
        deployments=[{"metadata": {"name": "train"}, "spec": {"replicas": 2}}],
        replicasets=[owned(name, "Deployment", spec={"replicas": wanted}) for name, wanted in (("old", 2), ("new", 1))],
        pods=[owned(f"old-{index}", "ReplicaSet", "old") for index in range(2)],
        events=[
            {"involvedObject": {"kind": "ReplicaSet", "name": name}, "message": message, "lastTimestamp": at}
            for name, message, at in (("new", "exceeded quota: gpu", "2026"), ("old", "of the past", "2027"))
        ],
    )
    assert said.findings == ("A pod could not be created: exceeded quota: gpu",)
    assert said.next == "ask for less, delete pods that count against the quota, or have it raised"
