"""Which labels of nodes a snapshot keeps."""

from __future__ import annotations

from vrampack.simulator.replay.trimming import REQUIRED, list_selected_keys


def test_label_keys_used_for_selection_are_listed() -> None:
    term = {"matchExpressions": [{"key": "model", "operator": "Exists"}]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}
    assert list(list_selected_keys({"nodeSelector": {"pool": "a"}, "affinity": affinity})) == ["pool", "model"]
