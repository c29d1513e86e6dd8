"""What keeps a pod from a node besides its cards, as the scheduler decides it."""

from __future__ import annotations

import msgspec
import pytest

from vrampack.cli.explain.pod import NodeSchedulingFields, PodSchedulingFields, find_obstacles

TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
KEPT = ("taint team=a:NoSchedule is not tolerated",)

TOLERATIONS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "the same": ({"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}, ()),
    "no operator means equal": ({"key": "team", "value": "a", "effect": "NoSchedule"}, ()),
    "no effect means every effect": ({"key": "team", "value": "a"}, ()),
    "any value": ({"key": "team", "operator": "Exists"}, ()),
    "everything": ({"operator": "Exists"}, ()),
    "an operator of a younger scheduler": ({"key": "team", "operator": "Gt", "value": "7"}, ()),
    "another value": ({"key": "team", "value": "b"}, KEPT),
    "no value": ({"key": "team"}, KEPT),
    "another key": ({"key": "tier", "operator": "Exists"}, KEPT),
    "another effect": ({"key": "team", "operator": "Exists", "effect": "NoExecute"}, KEPT),
}


def a_pod(**spec: object) -> PodSchedulingFields:
    return msgspec.convert({"spec": spec}, PodSchedulingFields)


def a_node(**spec: object) -> NodeSchedulingFields:
    return msgspec.convert({"spec": spec}, NodeSchedulingFields)


@pytest.mark.parametrize(("toleration", "want"), TOLERATIONS.values(), ids=TOLERATIONS)
def test_tolerations_match_as_in_the_scheduler(toleration: dict[str, str], want: tuple[str, ...]) -> None:
    assert find_obstacles(a_pod(tolerations=[toleration]), a_node(taints=[TAINT]), {}) == want


NODES: dict[str, tuple[NodeSchedulingFields, tuple[str, ...]]] = {
    "nothing": (a_node(), ()),
    "nulls": (a_node(taints=None, unschedulable=None), ()),
    "a taint that only asks": (a_node(taints=[{"key": "team", "effect": "PreferNoSchedule"}]), ()),
    "a taint without a value": (
        a_node(taints=[{"key": "gone", "effect": "NoExecute"}]),
        ("taint gone:NoExecute is not tolerated",),
    ),
    "cordoned, and tainted so by the control plane": (
        a_node(unschedulable=True, taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]),
        ("the node is cordoned",),
    ),
}


@pytest.mark.parametrize(("node", "want"), NODES.values(), ids=NODES)
def test_node_obstacles_of_a_pod_without_tolerations_are_found(
    node: NodeSchedulingFields, want: tuple[str, ...]
) -> None:
    assert find_obstacles(a_pod(), node, {}) == want


def test_a_pod_may_tolerate_a_cordon() -> None:
    cordon = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
    assert find_obstacles(a_pod(tolerations=[cordon]), a_node(unschedulable=True), {}) == ()


def test_every_label_of_the_selector_must_be_there() -> None:
    pod = a_pod(nodeSelector={"disk": "ssd", "zone": "b"})
    assert find_obstacles(pod, a_node(), {"disk": "ssd", "zone": "a"}) == ("nodeSelector wants zone=b",)
    assert find_obstacles(pod, a_node(), {"disk": "ssd", "zone": "b"}) == ()
