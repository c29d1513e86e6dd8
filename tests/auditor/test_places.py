"""A pod has a place where enough cards of one node have room for it, and nowhere else."""

from typing import Any

import pytest

from tests.auditor.builders import a_node, a_pod, bound
from tests.auditor.places import find_placeable_pods

Object = dict[str, Any]  # Any: raw objects, as in the builders
NODES = [a_node("n1"), a_node("n2", (15, 11))]
# n1: 15 - 8 = 7 and 15 - 3 = 12 free; n2: 15 - 15 = 0 and 11 free
HELD = [
    bound(a_pod("a", {"main": 8}), NODES[0]),
    bound(a_pod("b", {"main": 3}), NODES[0], (1,)),
    bound(a_pod("c", {"main": 15}), NODES[1]),
]

CASES: dict[str, tuple[Object, bool]] = {
    "the last room of the freest card": (a_pod("new", {"main": 12}), True),
    "one unit more than any card has": (a_pod("new", {"main": 13}), False),
    "7 on each of two cards": (a_pod("new", {"main": 14}, count=2), True),
    # 8 and 8: n1 has one card with 8, n2 one
    "cards of two nodes are no card set": (a_pod("new", {"main": 16}, count=2), False),
    "the whole of an empty card": (a_pod("new", {"main": 4}, whole=True), True),
    "more than the empty card": (a_pod("new", {"main": 12}, whole=True), False),
    "what no division gives": (a_pod("new", {"main": 3}, count=2), False),
}


@pytest.mark.parametrize(("pod", "fits"), CASES.values(), ids=CASES)
def test_a_pending_pod_is_placeable_if_a_card_fits(pod: Object, *, fits: bool) -> None:
    assert find_placeable_pods([*HELD, pod], NODES) == (["ml/new"] if fits else [])


def test_a_bound_pod_is_not_listed_as_placeable() -> None:
    assert find_placeable_pods(HELD, NODES) == []


def test_a_finished_pod_leaves_room() -> None:
    over = [dict(pod, status={"phase": "Succeeded"}) for pod in HELD]

    assert find_placeable_pods([*over, a_pod("new", {"main": 15})], NODES) == ["ml/new"]
