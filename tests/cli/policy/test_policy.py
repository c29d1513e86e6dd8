"""`vrampack policy`: what is in force is shown so that it can be read again, and its decisions with every term."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from extender.policy_file import find_policy_file, list_presets, load_placement_policy
from tests.cli.explain.objects import Object, a_bound_pod, a_gpu_node, a_waiting_pod
from vrampack.cli.policy.main import main
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.kubeconfig import write_kubeconfig

Said = pytest.CaptureFixture[str]
CLUSTER = (a_gpu_node("gpu-1"), a_gpu_node("gpu-2"), a_bound_pod("a", "gpu-1", {0: 8}), a_waiting_pod(units=4))


async def run_policy(folder: Path, *arguments: str, cluster: Iterable[Object] = CLUSTER) -> int:
    async with ApiServer() as api:
        for each in cluster:
            (api.restore if each["kind"] == "Pod" else api.create)(each)
        given = [*arguments, "--kubeconfig", str(write_kubeconfig(folder, api.url))]
        return await asyncio.to_thread(main, given)


@pytest.mark.parametrize("name", list_presets())
def test_shown_policy_loads_as_the_same_policy(name: str, tmp_path: Path, capsys: Said) -> None:
    assert main(["show", "--policy", name]) == 0
    shown = tmp_path / "shown.yaml"
    shown.write_text(capsys.readouterr().out)
    assert load_placement_policy(shown) == load_placement_policy(find_policy_file(name))
    assert "max_pods_per_card: null" in shown.read_text()
    assert "weights" in shown.read_text()


def test_policy_of_the_extender_file_is_shown_when_none_is_named(tmp_path: Path, capsys: Said) -> None:
    file = tmp_path / "extender.yaml"
    file.write_text("apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\nrules: {max_pods_per_card: 3}\n")
    assert main(["show", "--config", str(file)]) == 0
    assert "max_pods_per_card: 3" in capsys.readouterr().out
    assert main(["show", "--config", str(file), "--policy", "dense"]) == 2
    assert "give it only there" in capsys.readouterr().err


async def test_nodes_are_ranked_term_by_term(tmp_path: Path, capsys: Said) -> None:
    assert await run_policy(tmp_path, "explain", "--pod", "w") == 0
    ranking, headline, *_ = capsys.readouterr().out.split("\n\n")
    assert ranking.splitlines()[1:] == [
        "   1  gpu-1  -16.23  -15.6 memory left unusable + -0.6279 tie-breaks and rounding",
        "   2  gpu-2  -69.61  -57.2 memory left unusable + -11.8 opening another card + -0.6089 tie-breaks and rounding",
    ]
    assert headline.startswith("Pod default/w is pending and asks for 4 units")


async def test_a_node_that_the_pod_may_not_use_has_no_rank(tmp_path: Path, capsys: Said) -> None:
    kept = a_gpu_node("gpu-0", taints=[{"key": "team", "effect": "NoSchedule"}])
    assert await run_policy(tmp_path, "explain", "--pod", "w", cluster=(kept, *CLUSTER)) == 0
    ranking, _, table, verdict = capsys.readouterr().out.split("\n\n")
    assert [line.split()[1] for line in ranking.splitlines()[1:]] == ["gpu-1", "gpu-2"]
    assert table.splitlines()[3].endswith("fits; taint team:NoSchedule is not tolerated")
    assert verdict.startswith("2/3 nodes fit: 1 node(s) had untolerated taint(s).\n")


async def test_a_bound_is_shown_and_explained(tmp_path: Path, capsys: Said) -> None:
    """4 units more are 12 of 15, past 60 %, on one node, and 4 of 15 on the other."""
    file = tmp_path / "policy.yaml"
    tuned = "policy: {default: binpack, bounds: {card_use_percent: 60}}\n"
    file.write_text("apiVersion: vrampack.dev/v1\nkind: PlacementPolicy\n" + tuned)
    assert main(["show", "--policy", str(file)]) == 0
    assert "  bounds:\n    card_use_percent: 60\n" in capsys.readouterr().out
    assert await run_policy(tmp_path, "explain", "--pod", "w", "--policy", str(file)) == 0
    ranking, *_ = capsys.readouterr().out.split("\n\n")
    assert ranking.splitlines()[1:] == [
        "   1  gpu-2     -15  -15 free on card 0",
        "   2  gpu-1  -1e+09  -1e+09 fuller than the profile's bound + -7 free on card 0",
    ]


async def test_a_request_is_explained_without_a_pod(tmp_path: Path, capsys: Said) -> None:
    assert await run_policy(tmp_path, "explain", "--request", "15", "--policy", "fast", "-o", "json") == 0
    made = json.loads(capsys.readouterr().out)
    assert made["request"]["policy"] == "spread"
    assert {node["name"]: (node["score"], node["reason"]) for node in made["nodes"]} == {
        "gpu-1": (None, "no card with enough free memory"),
        "gpu-2": (-1.0, None),
    }
    (card,) = next(node for node in made["nodes"] if node["name"] == "gpu-1")["cards"]
    assert (card["missingUnits"], card["reason"]) == (8, "no card with enough free memory")


@pytest.mark.parametrize(
    "arguments", [["explain"], ["explain", "--request", "0"], ["explain", "--pod", "a", "--request", "1"]]
)
def test_explain_needs_exactly_one_subject(arguments: list[str], capsys: Said) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    assert "vrampack policy explain" in capsys.readouterr().err
