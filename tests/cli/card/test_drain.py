"""`vrampack card drain`: the card is cordoned, and each pod on it is named with its controller, its budget and where it fits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.simulate.clusters import Object, a_bound_pod, a_card, a_gpu_node
from tests.support.scripted_cluster import ScriptedCluster
from vrampack.cli.card.main import main
from vrampack.simulator.kubeconfig import write_kubeconfig

Said = pytest.CaptureFixture[str]
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"


def owned_by(kind: str) -> list[Object]:
    return [{"kind": kind, "name": "web", "controller": True}]


def a_budget(name: str, allowed: int, selector: Object | None) -> Object:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed},
    }


def build_answers(*pods: Object, budgets: tuple[Object, ...] = ()) -> dict[str, Any]:
    """Two nodes: two cards of 15 on the first, one on the second."""
    first = a_gpu_node("gpu-a", a_card(0), a_card(1))
    first["metadata"]["resourceVersion"] = "7"
    nodes = [first, a_gpu_node("gpu-b", a_card(0, uuid="GPU-b"))]
    return {
        "/api/v1/nodes": nodes,
        "/api/v1/nodes/gpu-a": first,
        "/api/v1/nodes/gpu-b": nodes[1],
        "/api/v1/pods": list(pods),
        BUDGETS: list(budgets),
    }


async def drain(folder: Path, cluster: ScriptedCluster, *arguments: str) -> int:
    kubeconfig = str(write_kubeconfig(folder, cluster.url))
    return await asyncio.to_thread(main, ["drain", *arguments, "--kubeconfig", kubeconfig])


PODS = (
    # GPU-0 of gpu-a: 6 + 5 of 15. What is left elsewhere: 15-9=6 on GPU-1 and 15-13=2 on gpu-b.
    a_bound_pod("large", "gpu-a", {0: 6}, labels={"app": "web"}, ownerReferences=owned_by("ReplicaSet")),
    a_bound_pod("small", "gpu-a", {0: 5}, ownerReferences=owned_by("ReplicaSet")),
    a_bound_pod("bare", "gpu-a", {0: 2}),
    a_bound_pod("other", "gpu-a", {1: 9}),
    a_bound_pod("far", "gpu-b", {0: 13}),
)


async def test_each_pod_of_the_card_is_placed_after_those_before_it(tmp_path: Path, capsys: Said) -> None:
    budgets = (
        a_budget("web", 0, {"matchLabels": {"app": "web"}}),
        a_budget("none", 0, None),
        a_budget("else", 0, {"matchLabels": {"app": "x"}}),
    )
    async with ScriptedCluster(build_answers(*PODS, budgets=budgets)) as cluster:
        assert await drain(tmp_path, cluster, "gpu-a", "0", "-o", "json") == 0
        assert cluster.patches == [
            {"metadata": {"resourceVersion": "7", "annotations": {"vrampack.dev/cordoned-cards": "GPU-0"}}}
        ]
    report: Mapping[str, Any] = json.loads(capsys.readouterr().out)
    assert report["cordoned"] == ["node/gpu-a card GPU-0 cordoned"]
    refusal = "0/2 nodes are available: 1 card unhealthy or cordoned, 1 no card with enough free memory."
    assert [
        (pod["name"], pod["units"], pod["controller"], pod["budgets"], pod["target"], pod["obstacle"])
        for pod in report["pods"]
    ] == [
        ("large", 6, "ReplicaSet/web", ["budget web allows 0 evictions"], "gpu-a", ""),
        ("small", 5, "ReplicaSet/web", [], "", refusal),
        ("bare", 2, "", [], "gpu-b", ""),
    ]
    assert [pod["step"].partition(":")[0] for pod in report["pods"]] == [
        "not now (budget web allows 0 evictions); then `kubectl -n default delete pod large`",
        "make room first",
        "nothing recreates it",
    ]


async def test_a_dry_run_writes_nothing_and_prints_the_same(tmp_path: Path, capsys: Said) -> None:
    async with ScriptedCluster(build_answers(*PODS)) as cluster:
        assert await drain(tmp_path, cluster, "gpu-a", "GPU-0", "--dry-run") == 0
        assert cluster.patches == []
    said = capsys.readouterr().out
    assert said.startswith("Pods on 1 card of gpu-a:\n\nNAMESPACE  POD    CARD  UNITS  CONTROLLER")
    assert "large  0         6  ReplicaSet/web  -       gpu-a\n" in said
    assert "cordoned\n" not in said.partition("To do:")[0].partition("Without room")[0]
    assert said.endswith("`vrampack card drain` again shows what is left.\n")


async def test_drain_without_a_card_covers_every_card_of_the_node(tmp_path: Path, capsys: Said) -> None:
    """Of the 22 units only the 2 of `bare` fit into the 2 that are left elsewhere: pods without room stay where they are."""
    async with ScriptedCluster(build_answers(*PODS, budgets=())) as cluster:
        assert await drain(tmp_path, cluster, "gpu-a", "--dry-run", "-o", "json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["cards"] == ["GPU-0", "GPU-1"]
    assert [(pod["name"], pod["target"]) for pod in report["pods"]] == [
        ("other", ""),
        ("large", ""),
        ("small", ""),
        ("bare", "gpu-b"),
    ]


async def test_unknown_details_of_a_drain_are_stated(tmp_path: Path, capsys: Said) -> None:
    stray = a_bound_pod("stray", "gpu-a", units=3)
    answers = {path: answer for path, answer in build_answers(stray).items() if path != BUDGETS}
    async with ScriptedCluster(answers) as cluster:
        assert await drain(tmp_path, cluster, "gpu-a", "0", "--dry-run") == 0
        said = capsys.readouterr().out
        assert await drain(tmp_path, cluster, "gpu-b", "--dry-run") == 0
        assert "No pod holds memory of 1 card of gpu-b" in capsys.readouterr().out
        assert await drain(tmp_path, cluster, "gpu-a", "9") == 1
    assert "note: PodDisruptionBudgets are not known: 404 NotFound" in said
    assert "stray  ?         3" in said
