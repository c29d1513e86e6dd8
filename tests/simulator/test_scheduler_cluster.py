"""What is taken on a node: by pods that the API shows bound, and by those that are assumed."""

from __future__ import annotations

from typing import Any

from vrampack.simulator.scheduling.cache import SchedulerCache
from vrampack.simulator.scheduling.filters import decode_spec

GPU = "example.com/gpu"


def a_node(name: str = "n", units: int = 10) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"allocatable": {GPU: str(units), "pods": "9"}}}


def a_pod(name: str, units: int, node: str = "n") -> dict[str, Any]:
    container = {"resources": {"requests": {GPU: str(units)}}}
    return {"metadata": {"uid": name, "name": name}, "spec": {"nodeName": node, "containers": [container]}}


def a_cluster() -> SchedulerCache:
    cluster = SchedulerCache()
    cluster.set_node(a_node())
    return cluster


def free(cluster: SchedulerCache, node: str = "n") -> int:
    """The most that another pod gets there."""
    return max(
        units for units in range(11) if not cluster.list_reasons(decode_spec(a_pod("asking", units)), node, ignored=())
    )


def test_bound_pods_hold_their_resources_until_they_are_removed() -> None:
    cluster = a_cluster()
    cluster.set_pod(a_pod("a", 4))
    cluster.set_pod(a_pod("b", 3))
    assert free(cluster) == 3  # 10 - 4 - 3
    cluster.remove_pod("a")
    cluster.remove_pod("a")
    assert free(cluster) == 7


def test_an_updated_bound_pod_counts_with_its_current_requests() -> None:
    cluster = a_cluster()
    cluster.set_pod(a_pod("a", 4))
    cluster.set_pod(a_pod("a", 5))
    assert free(cluster) == 5


def test_an_assumed_pod_holds_its_resources_until_it_is_forgotten() -> None:
    cluster = a_cluster()
    cluster.assume_pod(a_pod("a", 4), "n")
    assert free(cluster) == 6
    assert cluster.forget_pod("a")
    assert free(cluster) == 10


def test_a_pod_that_the_api_shows_bound_is_not_forgotten() -> None:
    cluster = a_cluster()
    cluster.set_node(a_node("other"))
    cluster.assume_pod(a_pod("a", 4), "n")
    cluster.set_pod(a_pod("a", 4, "other"))
    assert not cluster.forget_pod("a")
    assert (free(cluster), free(cluster, "other")) == (10, 6)


def test_a_node_that_comes_back_still_has_its_pods() -> None:
    cluster = a_cluster()
    cluster.set_pod(a_pod("a", 4))
    cluster.remove_node("n")
    assert not cluster.nodes
    cluster.set_node(a_node(units=8))
    assert free(cluster) == 4  # 8 - 4
