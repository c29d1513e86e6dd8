"""Required node affinity, as Kubernetes' documentation describes it."""

from __future__ import annotations

from typing import Any

import pytest

from vrampack.simulator.replay.node_affinity import REQUIRED, list_affinity_keys, matches_node_affinity

NODE = {"metadata": {"name": "gpu-1", "labels": {"model": "A100", "slots": "8"}}}


def demand(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


CASES = {
    "nothing is asked": ({}, True),
    "one of the values": (demand({"matchExpressions": [label("model", "In", "T4", "A100")]}), True),
    "none of the values": (demand({"matchExpressions": [label("model", "In", "T4")]}), False),
    "a label that is not there is not in": (demand({"matchExpressions": [label("zone", "NotIn", "a")]}), True),
    "exists": (demand({"matchExpressions": [label("zone", "Exists")]}), False),
    "does not exist": (demand({"matchExpressions": [label("zone", "DoesNotExist")]}), True),
    "greater": (demand({"matchExpressions": [label("slots", "Gt", "7")]}), True),
    "less": (demand({"matchExpressions": [label("slots", "Lt", "8")]}), False),
    "no number": (demand({"matchExpressions": [label("model", "Gt", "7")]}), False),
    "all of a term": (demand({"matchExpressions": [label("slots", "Exists"), label("model", "In", "T4")]}), False),
    "any of the terms": (demand({"matchExpressions": [label("zone", "Exists")]}, {"matchFields": [label("metadata.name", "In", "gpu-1")]}), True),
    "an empty term holds nowhere": (demand({}), False),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "holds"), CASES.values(), ids=CASES)
def test_a_node_matches_required_affinity(spec: dict[str, Any], *, holds: bool) -> None:
    assert matches_node_affinity(spec, NODE) is holds


def test_label_keys_used_for_selection_are_listed() -> None:
    spec = {"nodeSelector": {"pool": "a"}, **demand({"matchExpressions": [label("model", "Exists")]})}
    assert list(list_affinity_keys(spec)) == ["pool", "model"]
