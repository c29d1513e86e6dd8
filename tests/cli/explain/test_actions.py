"""What programs are told to do, on the clusters whose texts are tested."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.explain.fitting_texts import FITTING
from tests.cli.explain.hindered_texts import HINDERED
from tests.cli.explain.objects import run_explain
from tests.cli.explain.refused_texts import REFUSED

TEXTS = REFUSED | HINDERED | FITTING
NOTHING: dict[str, Any] = {"node": "", "card": None, "key": "", "value": "", "amount": 0, "count": 0}

ACTIONS: dict[str, list[dict[str, Any]]] = {
    "no room on one card": [{"kind": "free", "node": "gpu-1", "card": 0, "amount": 1}],
    "not enough cards with room": [{"kind": "free", "node": "gpu-2", "card": 0, "amount": 1}],
    "larger than any card": [{"kind": "change-request", "node": "gpu-1", "amount": 15}],
    "bytes where units are counted": [{"kind": "change-request"}],
    "too few cards": [{"kind": "add-node", "amount": 4, "count": 3}],
    "another model": [{"kind": "add-node", "amount": 8, "count": 1}],
    "no GPU at all": [{"kind": "add-node", "amount": 8, "count": 1}],
    "tainted, cordoned, not selected": [
        {"kind": "uncordon", "node": "gpu-1"},
        {"kind": "remove-taint", "node": "gpu-1", "key": "team", "value": "NoExecute"},
        {"kind": "label", "node": "gpu-1", "key": "disk", "value": "ssd"},
    ],
    "kubelet offers less than the cards have": [{"kind": "none", "node": "gpu-1"}],
    "the selected nodes are full": [{"kind": "free", "node": "a100-1", "card": 0, "amount": 3}],
    "the node lacks CPU": [{"kind": "free", "node": "gpu-1", "key": "cpu", "amount": 3000}],
    "no node has so much CPU": [{"kind": "change-request", "node": "gpu-1", "key": "cpu", "amount": 8000}],
    "the card and the CPU are taken": [
        {"kind": "free", "node": "gpu-1", "key": "cpu", "amount": 3000},
        {"kind": "free", "node": "gpu-1", "card": 0, "amount": 5},
    ],
    "no scheduler has looked at it": [{"kind": "wait", "node": "gpu-1"}],
    "held back by gates": [{"kind": "remove-gates"}, {"kind": "wait", "node": "gpu-1"}],
    "pods are leaving for it, by card": [{"kind": "wait", "node": "gpu-1"}],
}


@pytest.mark.parametrize("case", ACTIONS)
async def test_actions_say_what_the_text_says(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run_explain(tmp_path, TEXTS[case][0], "pod", "w", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["actions"] == [NOTHING | action for action in ACTIONS[case]]
