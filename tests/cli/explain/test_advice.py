"""Whoever does as `explain` says of a pod that is too large gets the pod placed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.explain.objects import Object, a_gpu_node, a_waiting_pod, run_explain
from tests.support.manifest_builders import published_card

Said = pytest.CaptureFixture[str]
T4 = a_gpu_node("t4", published_card(0, units=8, memory_mib=8192, model="T4"))
H = a_gpu_node("h", *(published_card(index, units=15, memory_mib=15360, model="H") for index in range(4)))
MODEL = {"vrampack.dev/card-model": "T4"}
WISHES = {
    "model": ((T4, H), MODEL, "ask for at most 8 units on a card, the largest that it may use"),
    "uuid": (
        (H,),
        {"vrampack.dev/card-uuid": "GPU-0"},
        "ask for at most 15 units on a card, the largest that it may use",
    ),
    "no such model": (
        (H,),
        MODEL,
        "ask for less, and for cards that it may use: there are none, as its annotations and the rules stand",
    ),
}


@pytest.mark.parametrize(("nodes", "wish", "step"), WISHES.values(), ids=WISHES)
async def test_only_cards_that_the_pod_may_use_are_advised(
    nodes: tuple[Object, ...], wish: dict[str, str], step: str, tmp_path: Path, capsys: Said
) -> None:
    await run_explain(tmp_path, (*nodes, a_waiting_pod("w", 20, annotations=wish)))
    assert f"Next: {step}.\n" in capsys.readouterr().out


async def test_a_pod_with_the_advised_amount_fits(tmp_path: Path, capsys: Said) -> None:
    await run_explain(tmp_path, (T4, H, a_waiting_pod("w", 20, annotations=MODEL)), "pod", "w", "-o", "json")
    (action,) = json.loads(capsys.readouterr().out)["actions"]
    await run_explain(tmp_path, (T4, H, a_waiting_pod("w", action["amount"], annotations=MODEL)))
    assert "1/2 nodes fit" in capsys.readouterr().out


async def test_a_program_adds_a_node_where_no_card_may_be_used(tmp_path: Path, capsys: Said) -> None:
    await run_explain(tmp_path, (H, a_waiting_pod("w", 20, annotations=MODEL)), "pod", "w", "-o", "json")
    assert [each["kind"] for each in json.loads(capsys.readouterr().out)["actions"]] == ["add-node"]
