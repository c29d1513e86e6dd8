"""`explain` of a workload: its pods, why it has fewer than it wants, and why one of them waits."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli.explain.objects import Object, a_bound_pod, a_waiting_pod, run_explain
from tests.cli.explain.scenes import S1
from tests.fakes.faults import api_status
from tests.fakes.proxy import FaultProxy
from tests.support.processes import REPOSITORY
from vrampack.cli.explain.main import main
from vrampack.cli.explain.schema import WorkloadExplanation
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.kubeconfig import write_kubeconfig

Said = pytest.CaptureFixture[str]
SCHEMA = REPOSITORY / "docs" / "schemas" / "workload-explanation.v1.json"
OWNER = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "train", "uid": "s", "controller": True}
OTHER = {**OWNER, "name": "other"}


def a_stateful_set(replicas: int) -> Object:
    template = {"metadata": {"labels": {"app": "train"}}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    spec = {
        "replicas": replicas,
        "serviceName": "",
        "selector": {"matchLabels": {"app": "train"}},
        "template": template,
    }
    return {"kind": "StatefulSet", "apiVersion": "apps/v1", "metadata": {"name": "train"}, "spec": spec}


def a_refusal(name: str, message: str, *, at: str, owner: str = "train") -> Object:
    subject = {"kind": "StatefulSet", "namespace": "default", "name": owner}
    return {
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": subject,
        "reason": "FailedCreate",
        "message": message,
        "lastTimestamp": at,
    }


EVENTS = (
    a_refusal("old", "an older reason", at="2026-01-01T00:00:00Z"),
    a_refusal("new", 'pods "train-2" is forbidden: exceeded quota: gpu', at="2026-01-02T00:00:00Z"),
    a_refusal("other", "of another one", at="2026-01-03T00:00:00Z", owner="other"),
)
PODS = (
    a_bound_pod("train-0", "gpu-1", {0: 4}, ownerReferences=[OWNER], creationTimestamp="2026-01-01T00:00:00Z"),
    a_waiting_pod("train-1", ownerReferences=[OWNER], creationTimestamp="2026-01-01T00:00:01Z"),
    a_waiting_pod("stranger", ownerReferences=[OTHER], creationTimestamp="2025-01-01T00:00:01Z"),
)


async def test_the_pods_and_what_is_missing_are_shown(tmp_path: Path, capsys: Said) -> None:
    """9 of 15 units are used when the third pod of 4 is bound."""
    assert await run_explain(tmp_path, (*S1, a_stateful_set(3), *PODS, *EVENTS), "sts", "train") == 0
    assert (
        capsys.readouterr().out
        == """\
StatefulSet default/train wants 3 and has 2 of its pods.

POD      STATE    NODE
train-0  bound    gpu-1
train-1  pending  -

A pod could not be created: pods "train-2" is forbidden: exceeded quota: gpu
Next: ask for less, delete pods that count against the quota, or have it raised.

Pod default/train-1 is pending and asks for 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        3/15        5  not enough free memory

0/1 nodes fit: 1 no card with enough free memory.
Next: free 5 units on gpu-1 GPU0 (pods there: default/app-0 4, default/app-1 4, default/train-0 4), or add a card.
"""
    )


NEXT = {
    "denied": (
        (a_refusal("a", 'pods "train-0" is forbidden: ValidatingAdmissionPolicy denied request', at="2026"),),
        "correct the pod's template as the message says",
    ),
    "another reason": (
        (a_refusal("a", "timed out", at="2026"),),
        "the message above says what its controller waits for",
    ),
    "no event": (
        (),
        "wait: no event says that a pod could not be created; if none comes, see that the cluster's controllers run",
    ),
}


@pytest.mark.parametrize(("events", "step"), NEXT.values(), ids=NEXT)
async def test_the_next_step_depends_on_what_was_written(
    events: tuple[Object, ...], step: str, tmp_path: Path, capsys: Said
) -> None:
    assert await run_explain(tmp_path, (a_stateful_set(1), *events), "statefulset", "train", "-o", "json") == 0
    said = msgspec.json.decode(capsys.readouterr().out, type=WorkloadExplanation, strict=True)
    assert (said.headline, said.next) == ("StatefulSet default/train wants 1 and has none of its pods.", step)
    assert said.waiting is None


async def test_a_workload_that_has_its_pods_needs_nothing(tmp_path: Path, capsys: Said) -> None:
    assert await run_explain(tmp_path, (*S1, a_stateful_set(1), PODS[0], *EVENTS), "sts", "default/train") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "train-0  bound  gpu-1"


async def test_a_deployment_of_the_embedded_cluster_owns_its_pods(tmp_path: Path, capsys: Said) -> None:
    deployment = {**a_stateful_set(1), "kind": "Deployment"}
    pod = a_bound_pod("train-0", "gpu-1", {0: 4}, ownerReferences=[{**OWNER, "kind": "Deployment"}])
    assert await run_explain(tmp_path, (*S1, deployment, pod), "deploy", "train") == 0
    assert "Deployment default/train wants 1 and has 1 of its pods." in capsys.readouterr().out


async def test_a_workload_that_is_missing_ends_with_one_line(tmp_path: Path, capsys: Said) -> None:
    assert await run_explain(tmp_path, (), "deployment", "train") == 1
    assert capsys.readouterr() == ("", "vrampack: there is no Deployment train in namespace default\n")


@pytest.mark.parametrize("named", [("statefulset.apps/train",), ("statefulsets.apps", "default/train")])
async def test_the_group_may_be_named(named: tuple[str, ...], tmp_path: Path, capsys: Said) -> None:
    assert await run_explain(tmp_path, (a_stateful_set(1),), *named) == 0
    assert capsys.readouterr().out.startswith("StatefulSet default/train wants 1")


async def test_a_namespace_may_be_called_pod(tmp_path: Path, capsys: Said) -> None:
    assert await run_explain(tmp_path, (), "sts", "pod/train") == 1
    assert capsys.readouterr().err == "vrampack: there is no StatefulSet train in namespace pod\n"


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("deploymnt/train", "deployment train"),
        ("statefullset/ml/train", "statefulset ml/train"),
        ("job.apps/a", "jobs a"),
    ],
)
def test_a_kind_that_is_misspelt_gets_the_nearest(given: str, hint: str, capsys: Said) -> None:
    with pytest.raises(SystemExit) as left:
        main([given])
    assert left.value.code == 2
    assert f"write: vrampack explain {hint}\n" in capsys.readouterr().err


async def test_a_workload_is_shown_though_its_waiting_pod_is_gone(tmp_path: Path, capsys: Said) -> None:
    gone = api_status(404) | {"details": {"kind": "pods", "name": "train-1"}}
    code = await explain_behind(tmp_path, "/pods/train-1", gone)
    said = capsys.readouterr().out
    assert (code, "train-1  pending  -" in said, "Pod default/train-1" in said) == (0, True, False)


async def test_a_reader_who_may_not_list_events_is_shown_the_pods(tmp_path: Path, capsys: Said) -> None:
    assert await explain_behind(tmp_path, "/events", api_status(403)) == 0
    said = capsys.readouterr().out
    assert "train-1  pending  -" in said
    assert (
        "You may not list events, so it is not known whether a pod could not be created.\nNext: have somebody" in said
    )
    assert "Pod default/train-1 is pending" in said


async def explain_behind(folder: Path, target: str, answer: Object) -> int:
    """Of a workload with one pod of three, before an API server that answers the target with this Status."""
    async with ApiServer() as api, FaultProxy(int(api.url.rpartition(":")[2])) as proxy:
        for each in (*S1, a_stateful_set(3), PODS[1]):
            (api.restore if each["kind"] == "Pod" else api.create)(each)
        proxy.when("GET", target).answer(answer["code"], answer)
        given = ["sts", "train", "--kubeconfig", str(write_kubeconfig(folder, proxy.url))]
        return await asyncio.to_thread(main, given)


def test_published_schema_matches_the_code() -> None:
    """`python -m tests.cli.explain.test_workload` writes it again."""
    assert json.loads(SCHEMA.read_text()) == the_schema()


def the_schema() -> Any:  # noqa: ANN401 - a JSON document
    title = "What `vrampack explain deployment -o json` prints"
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.loads(json.dumps(head | msgspec.json.schema(WorkloadExplanation)))


if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(the_schema(), indent=2) + "\n")
