"""What is made of the lists: units, sums, which nodes are shown, and lists that expire or are damaged."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.inspect.clusters import CLUSTERS, COUNT, a_card, a_legacy_node, a_node, a_pod, ours
from tests.cli.inspect.lists import Object, PagedLists
from tests.support.in_memory_extender import PREFIX, InMemoryExtender
from tests.support.random_clusters import random_cluster
from vrampack.cli.inspect.cluster import Resource, inspect_cluster, select_nodes
from vrampack.cli.inspect.errors import ExpiredListError, ReadError
from vrampack.cli.inspect.schema import build_inspection_document

WHOLE = {"ack.gpushare.placement": "require-whole-device"}

UNITS = {
    "no node says": ((), 1024),
    "one": ((256,), 256),
    "the most common": ((256, 512, 512, 1024), 512),
    "of equally many the default": ((256, 256, 1024, 1024), 1024),
    "of equally many others the smallest": ((512, 256, 512, 256), 256),
}


@pytest.mark.parametrize(("published", "want"), UNITS.values(), ids=UNITS)
def test_the_unit_is_what_most_nodes_publish(published: Sequence[int], want: int) -> None:
    nodes = [a_node(f"n{at}", [a_card("n", 0, 9)], unit_mib=unit) for at, unit in enumerate(published)]
    cluster = inspect_cluster(PagedLists([*nodes, a_legacy_node("old", 10, 1)]))
    assert cluster.unit_mib == want
    legacy = cluster.nodes[-1].node
    assert (legacy.name, legacy.unit_mib, legacy.cards[0].memory_mib) == ("old", want, 10 * want)
    assert [view.node.name for view in cluster.nodes if view.node.problem] == [
        f"n{at}" for at, unit in enumerate(published) if unit != want
    ]


def test_given_unit_overrides_the_published_one() -> None:
    cluster = inspect_cluster(PagedLists([a_node("n", [a_card("n", 0, 9)])]), unit_mib=512)
    assert (cluster.unit_mib, cluster.total_units) == (512, 0)
    assert "its unit is 1024 MiB, the cluster's is 512 MiB" in cluster.nodes[0].node.problem


def test_nodes_without_gpu_memory_are_reported_by_name_only() -> None:
    cluster = inspect_cluster(CLUSTERS["no-gpu-nodes"].lists())
    assert (cluster.nodes, cluster.nodes_without_memory) == ((), frozenset({"cpu-1"}))


def test_selecting_nodes_keeps_the_totals_of_the_cluster() -> None:
    cluster = inspect_cluster(CLUSTERS["gpushare"].lists())
    one = select_nodes(cluster, ["gpu-node-2", "nope"])
    assert [view.node.name for view in one.nodes] == ["gpu-node-2"]
    assert (one.used_units, one.total_units) == (21, 48)


def test_a_list_that_expires_is_read_again_once() -> None:
    lists = CLUSTERS["gpushare"].lists(page_size=1)
    lists.expires = 1
    assert inspect_cluster(lists) == inspect_cluster(CLUSTERS["gpushare"].lists())
    assert lists.asked == ["nodes", "nodes", "pods"]


def test_a_list_that_expires_twice_is_an_error() -> None:
    lists = CLUSTERS["gpushare"].lists(page_size=1)
    lists.expires = 2
    with pytest.raises(ExpiredListError):
        inspect_cluster(lists)


def test_a_damaged_list_is_an_error_that_names_it() -> None:
    class Broken(PagedLists):
        def read_pages(self, resource: Resource) -> list[bytes]:
            return [b'{"items":7}'] if resource == "pods" else [b'{"items":[]}']

    with pytest.raises(ReadError, match="the list of pods cannot be read: items: a list is expected"):
        inspect_cluster(Broken())


UNPLACED = {
    # what is more: the record says 7 of a card that is gone, the pod asks 4; and the other way round
    "more recorded than asked": (a_pod("p", "n", 4, record=ours(("GPU-x", 0, 7))), 7),
    "more asked than recorded": (a_pod("p", "n", 9, record=ours(("GPU-x", 0, 7))), 9),
    "recorded on two cards, one of them gone": (a_pod("p", "n", 4, record=ours(("GPU-n-0", 0, 3), ("GPU-x", 1, 3))), 6),
    "asks nothing": (a_pod("p", "n", record=ours(("GPU-x", 0, 5))), 5),
    # it holds both of its cards entirely, which were 10 and 12 when they were recorded
    "whole cards, recorded": (a_pod("p", "n", 4, labels=WHOLE, record=ours(("GPU-x", 0, 10), ("GPU-y", 1, 12))), 22),
    # two whole cards of three, of 15, 8 and 15 units: at most the two largest
    "whole cards, not recorded": (a_pod("p", "n", 4, labels=WHOLE | {COUNT: "2"}), 30),
    # no record, 8 on each of two cards
    "two cards, not recorded": (a_pod("p", "n", 16, labels={COUNT: "2"}), 16),
}


@pytest.mark.parametrize(("pod", "want"), UNPLACED.values(), ids=UNPLACED)
def test_a_pod_on_no_known_card_counts_once_with_all_it_may_hold(pod: Object, want: int) -> None:
    node = a_node("n", [a_card("n", index, units) for index, units in enumerate((15, 8, 15))])
    (view,) = inspect_cluster(PagedLists([node], [pod])).nodes
    assert (view.unplaced_units, view.used_units) == (want, want)


def test_two_pods_of_the_same_name_both_count() -> None:
    """One is deleted by force and its successor is already there: both still hold."""
    old, new = (a_pod("p", "n", 4) for _ in range(2))
    old["metadata"]["uid"] = "old"
    cluster = inspect_cluster(PagedLists([a_legacy_node("n", 15, 1)], [old, new]))
    assert cluster.used_units == 8


@pytest.mark.parametrize("first_seed", range(0, 80, 20))
async def test_the_numbers_equal_those_of_the_extender(first_seed: int) -> None:
    """The plugin and the extender make the same answer from the same objects; the plugin reads no Leases."""
    for seed in range(first_seed, first_seed + 20):
        objects = random_cluster(seed)
        pods = [*objects.pods, objects.asking]
        answer = (await InMemoryExtender(objects.nodes, pods).get_path(f"{PREFIX}/inspect")).json()
        shown = build_inspection_document(inspect_cluster(PagedLists(objects.nodes, pods, page_size=3), unit_mib=1024))
        for card in (card for node in answer["nodes"] for card in node["devs"]):
            card.pop("reallyUsed", None)
        assert json.loads(json.dumps(shown["nodes"])) == answer["nodes"], seed


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_every_pod_counts_once_in_the_sums(seed: int) -> None:
    objects = random_cluster(seed)
    cluster = inspect_cluster(PagedLists(objects.nodes, objects.pods), unit_mib=1024)
    for view in cluster.nodes:
        placed = sum(sum(hold.units.values()) for hold in view.holds if not hold.unplaced_reason)
        assert view.used_units == placed + view.unplaced_units
    same_unit = [view for view in cluster.nodes if view.node.unit_mib == 1024]
    assert cluster.used_units == sum(view.used_units for view in same_unit)
    assert cluster.total_units == sum(view.total_units for view in same_unit)
