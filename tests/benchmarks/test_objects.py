"""The measured cluster is the one that the figures are about."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.cluster_objects import (
    FULL_NODE_FREE_UNITS,
    MAX_ASKED_UNITS,
    NODE_BYTES,
    PAGE_SIZE,
    POD_BYTES,
    BenchmarkCluster,
)
from benchmarks.percentiles import compute_percentile
from tests.support.in_memory_extender import InMemoryExtender

CLUSTER = BenchmarkCluster(nodes=50, pods=200, others=300, pending=2, seed=3)


def items(pages: list[bytes]) -> list[Any]:
    return [item for page in pages for item in json.loads(page)["items"]]


def size_of(item: Any) -> int:  # noqa: ANN401 - an API object
    return len(json.dumps(item, separators=(",", ":"), ensure_ascii=False))


@pytest.fixture(scope="module")
def nodes() -> list[Any]:
    return items(CLUSTER.encode_node_pages())


@pytest.fixture(scope="module")
def pods() -> list[Any]:
    return items(CLUSTER.encode_pod_pages())


def test_the_extender_reports_no_problem_with_generated_objects(nodes: list[Any], pods: list[Any]) -> None:
    extender = InMemoryExtender(nodes, pods)
    assert extender.ledger_recorder.problems == []
    assert len(list(extender.ledger.list_pods())) == 202


def test_half_of_the_nodes_fit_every_request_and_the_others_none(nodes: list[Any], pods: list[Any]) -> None:
    ledger = InMemoryExtender(nodes, pods).ledger
    for at, name in enumerate(CLUSTER.list_node_names()):
        node = ledger.get_node(name)
        assert node is not None
        room = [card.free_units for card in node.cards]
        assert max(room) <= FULL_NODE_FREE_UNITS if at % 10 < 5 else min(room) >= MAX_ASKED_UNITS


def test_the_generated_cluster_has_the_documented_sizes(nodes: list[Any], pods: list[Any]) -> None:
    assert (len(nodes), len(pods)) == (50, 502)
    assert all(-25 < size_of(pod) - POD_BYTES <= 0 for pod in pods)
    assert all(-25 < size_of(node) - NODE_BYTES <= 0 for node in nodes)


def test_each_page_has_the_token_of_the_next_and_the_last_has_none() -> None:
    pages = [json.loads(page) for page in CLUSTER.encode_pod_pages()]
    assert [len(page["items"]) for page in pages] == [PAGE_SIZE, 2]
    assert [page["metadata"].get("continue") for page in pages] == ["1", None]


def test_the_same_seed_gives_the_same_bytes() -> None:
    assert CLUSTER.encode_pod_pages() == CLUSTER.encode_pod_pages()
    assert (
        BenchmarkCluster(nodes=50, pods=200, seed=4).encode_pod_pages()
        != BenchmarkCluster(nodes=50, pods=200, seed=3).encode_pod_pages()
    )


RANKS = {
    "the middle of three": ([3.0, 1.0, 2.0], 0.5, 2.0),
    "of four, the second: half do not exceed it": ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0),
    "99 of 100 do not exceed the 99th": ([float(n) for n in range(1, 101)], 0.99, 99.0),
    "of few, the largest": ([1.0, 2.0], 0.99, 2.0),
    "of one, that one": ([7.0], 0.5, 7.0),
}


@pytest.mark.parametrize(("values", "share", "want"), RANKS.values(), ids=RANKS)
def test_a_percentile_is_a_value_that_was_measured(values: list[float], share: float, want: float) -> None:
    assert compute_percentile(values, share) == want
