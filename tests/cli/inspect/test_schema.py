"""The JSON matches its published schema, and the schema refuses what does not."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.cli.inspect.clusters import CLUSTERS
from tests.cli.inspect.lists import PagedLists
from tests.cli.inspect.schema import find_schema_faults
from tests.support.random_clusters import random_cluster
from vrampack.cards.holding import HoldState
from vrampack.cli.inspect.cluster import inspect_cluster
from vrampack.cli.inspect.schema import build_inspection_document

ROOT = Path(__file__).parent.parent.parent.parent
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "inspection.v1.json").read_text())


def an_answer(name: str) -> Any:  # noqa: ANN401 - any JSON value
    return json.loads(json.dumps(build_inspection_document(inspect_cluster(CLUSTERS[name].lists()))))


@pytest.mark.parametrize("name", CLUSTERS)
def test_golden_clusters_follow_the_schema(name: str) -> None:
    assert list(find_schema_faults(an_answer(name), SCHEMA, SCHEMA)) == []


def test_random_clusters_follow_the_schema() -> None:
    for seed in range(100):
        objects = random_cluster(seed)
        document = build_inspection_document(inspect_cluster(PagedLists(objects.nodes, objects.pods)))
        assert list(find_schema_faults(json.loads(json.dumps(document)), SCHEMA, SCHEMA)) == [], seed


def test_the_schema_knows_every_state() -> None:
    assert set(SCHEMA["$defs"]["pod"]["properties"]["state"]["enum"]) == set(get_args(HoldState))


SPOILS: dict[str, tuple[tuple[str | int, ...], object, str]] = {
    "another kind": (("kind",), "Demo", "$.kind: not 'Inspection'"),
    "a number as text": (("totalGPU",), "31", "$.totalGPU: not of type integer"),
    "below nothing": (("nodes", 0, "usedGPU"), -1, "$.nodes[0].usedGPU: less than 0"),
    "a truth as number": (("nodes", 0, "devs", 0, "id"), True, "$.nodes[0].devs[0].id: not of type integer"),
    "a new field": (("nodes", 0, "devs", 1, "x"), 1, "$.nodes[0].devs[1].x: not in the schema"),
    "a new state": (("nodes", 0, "unplaced", 0, "state"), "gone", "$.nodes[0].unplaced[0].state: 'gone' is none of"),
}


@pytest.mark.parametrize(("path", "value", "want"), SPOILS.values(), ids=SPOILS)
def test_the_schema_is_strict(path: tuple[str | int, ...], value: object, want: str) -> None:
    answer = an_answer("unknown-pods")
    spoiled = copy.deepcopy(answer)
    at = spoiled
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    (fault,) = find_schema_faults(spoiled, SCHEMA, SCHEMA)
    assert fault.startswith(want)


def test_no_field_may_be_missing() -> None:
    answer = an_answer("unknown-pods")
    del answer["nodes"][0]["devs"][0]["heldGPU"]
    assert list(find_schema_faults(answer, SCHEMA, SCHEMA)) == ["$.nodes[0].devs[0].heldGPU: missing"]
