"""The most expensive pods are as the rows describe them, and an API server would accept each of them."""

from __future__ import annotations

import json

import pytest

from benchmarks.cluster_objects import CROWD, BenchmarkCluster, Object, encode_json
from benchmarks.hostile_pods import HostileKind, list_hostile_kinds
from benchmarks.options import BenchmarkOptions

CLUSTER = BenchmarkCluster(nodes=50, pods=200, crowded=5)
KINDS = {kind.key: kind for kind in list_hostile_kinds(CLUSTER, BenchmarkOptions())}
MAX_OBJECT_BYTES = 1_500_000
"""Of etcd's 1.5 MiB."""


def pods_of(kind: HostileKind) -> list[Object]:
    return [json.loads(encode_json(kind.build_pod(number))) for number in range(3)]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_hostile_pods_are_distinct_and_within_api_server_limits(kind: HostileKind) -> None:
    pods = pods_of(kind)
    assert len({pod["metadata"]["uid"] for pod in pods}) == len(pods)
    for pod in pods:
        annotations = pod["metadata"].get("annotations", {})
        assert sum(len(key) + len(text) for key, text in annotations.items()) <= 256 * 1024
        assert all(len(text) <= 63 for text in pod["metadata"]["labels"].values())
        assert len(json.dumps(pod)) < MAX_OBJECT_BYTES


def test_hostile_pod_shapes_are_distinct() -> None:
    shapes = KINDS["shapes"]
    texts = set()
    for number in range(shapes.count):
        pod = shapes.build_pod(number)
        labels, annotations = pod["metadata"]["labels"], pod["metadata"]["annotations"]
        resources = pod["spec"]["containers"][0]["resources"]["limits"]
        texts.add((str(sorted(labels.items())), str(sorted(annotations.items())), str(sorted(resources.items()))))
    assert len(texts) == shapes.count == 4096


def test_a_crowded_node_is_full_of_the_pods_proposed_as_victims() -> None:
    crowded = CLUSTER.list_crowded_nodes()
    assert len(crowded) == 5
    for node in crowded:
        names = [pod["metadata"]["name"] for pod in CLUSTER.build_node_pods(node)]
        assert names == [f"pod-{node}-{number}" for number in range(CROWD)]
        assert CLUSTER.is_full(node)
