"""Pods that no extender placed, or whose containers were given no card: none starts, and each gets the reason."""

from __future__ import annotations

from tests.node.admission import ENVIRONMENT, SCHEDULERS, before_policies
from tests.node.card_agreement import list_container_starts
from tests.node.controlplane import NODE_NAME
from tests.node.node import LiveNode
from tests.node.pods import a_pod


def test_a_static_pod_gets_no_card(node: LiveNode) -> None:
    """It passes neither admission nor a scheduler; kubelet gives it devices, and the fence refuses its start."""
    file = node.add_static_pod("static", a_pod("static", main=4))
    try:
        node.wait(lambda: "a static pod is not scheduled" in node.events("static-node"), what="it is told why")
        assert list_container_starts(node, "static-node") == []
    finally:
        file.unlink()
        node.wait(lambda: node.get("pod", "static-node") is None, what="it is gone")


def test_a_pod_made_before_the_policy_is_not_bound(node: LiveNode) -> None:
    early = a_pod("early")
    with before_policies(node, ENVIRONMENT, early):
        node.apply(early)
    text = "created before the admission policy"
    node.wait(lambda: text in node.events("early"), what=lambda: node.events("early"))
    assert "nodeName" not in node.get("pod", "early")["spec"]


def test_a_pod_that_names_its_node_is_not_started(node: LiveNode) -> None:
    """It bypasses every policy, as before the install: kubelet gets it without a record."""
    placed = a_pod("placed")
    placed["spec"]["nodeName"] = NODE_NAME
    with before_policies(node, [*ENVIRONMENT, *SCHEDULERS], placed):
        node.apply(placed)
    node.wait(lambda: "GPUMemoryStartRefused" in node.events("placed"), what=lambda: node.events("placed"))
    assert list_container_starts(node, "placed") == []
