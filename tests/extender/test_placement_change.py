"""What comes, goes or changes while new rules are put into force is as it would be if they had been in force from the start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from extender.state.ledger import Ledger
from extender.state.ledger_drift import count_drift_units
from extender.state.namespaces import NamespaceLabels, PlacementInForce
from extender.state.placement_change import apply_placement
from policies.engine.change_log import REMOVED_NODES_KEPT
from tests.support.builders import UNIT_MIB, card_facts, ledger_pod
from vrampack.cards.node import NodeFacts, Share
from vrampack.cards.pod import Pod
from vrampack.cards.profiles import PlacementSettings
from vrampack.cards.records import Record
from vrampack.cards.rules import CardReserve, ModelPermit, PlacementRules, PodSelector

NODES = 24
"""Three slices."""
DEVELOPERS = PodSelector(namespace_labels=(("tier", "dev"),))
PLACEMENT = PlacementSettings(
    PlacementRules(
        max_pods_per_card=2,
        share_with="same-namespace",
        reserves=(CardReserve("A", 5, PodSelector(namespaces=("vip",))),),
        permits=(ModelPermit(DEVELOPERS, frozenset("B")),),
    )
)
RESTRICTED = (("tier", "dev"),)


class Cluster:
    """A ledger of these nodes, and the labels that the rules read."""

    def __init__(self, placement: PlacementSettings | None = None) -> None:
        self.labels = NamespaceLabels({"tier"})
        self.labels.put_labels("default", ())
        self.ledger = Ledger(unit_mib=UNIT_MIB, clock=lambda: 0.0)
        if placement is not None:
            self.ledger = Ledger(unit_mib=UNIT_MIB, clock=lambda: 0.0, placement=placement)
            self.ledger.in_force = PlacementInForce(placement, self.labels)
        for at in range(NODES):
            self.put_node(f"n{at:02}")
        self.put_pod("waiting")
        self.put_pod("held", "n00")

    def put_node(self, name: str, units: int = 16) -> None:
        cards = card_facts(units, units, model="A", uuids=(f"{name}-0", f"{name}-1"))
        self.ledger.update_node(NodeFacts(name, cards, unit_mib=UNIT_MIB))

    def put_pod(self, name: str, node: str = "") -> None:
        record = Record("vrampack", (Share(4, f"{node}-0", 0),)) if node else None
        self.ledger.update_pod(ledger_pod(name, units=4, node=node, record=record))

    def replace_node(self) -> None:
        self.ledger.remove_node("n01")
        self.put_node("n01")

    def replace_all_nodes(self) -> None:
        """An autoscaler's churn: the change log forgets which nodes are gone."""
        for at in range(2 * NODES + REMOVED_NODES_KEPT):
            self.put_node(f"z{at}")
            self.ledger.remove_node(f"z{at}")
        for at in range(NODES // 2):
            self.ledger.remove_node(f"n{at:02}")

    def relabel_namespace(self) -> None:
        self.labels.put_labels("default", RESTRICTED)
        self.ledger.update_namespace("default")

    def remove_namespace(self) -> None:
        self.labels.put_labels("default", None)
        self.ledger.update_namespace("default")

    def put_namespace(self) -> None:
        self.labels.put_labels("new", RESTRICTED)
        self.ledger.update_namespace("new")
        self.ledger.update_pod(replace(ledger_pod("first", units=4), namespace="new"))

    def list_unbound(self) -> list[Pod]:
        return sorted(self.ledger.list_unbound_pods(), key=lambda pod: pod.uid)


CHANGES: dict[str, Callable[[Cluster], None]] = {
    "a node joins": lambda cluster: cluster.put_node("new"),
    "a node joins that comes first, so that its cards are reserved": lambda cluster: cluster.put_node("a"),
    "a node with reserved cards leaves": lambda cluster: cluster.ledger.remove_node("n01"),
    "a node leaves and comes back": Cluster.replace_node,
    "a node's cards change": lambda cluster: cluster.put_node("n05", 24),
    "nodes leave by the hundred": Cluster.replace_all_nodes,
    "a pod comes": lambda cluster: cluster.put_pod("new"),
    "a pod is bound": lambda cluster: cluster.put_pod("waiting", "n07"),
    "a pod goes that waited": lambda cluster: cluster.ledger.remove_pod("waiting"),
    "a pod goes that was bound": lambda cluster: cluster.ledger.remove_pod("held"),
    "a namespace is relabelled": Cluster.relabel_namespace,
    "a namespace goes": Cluster.remove_namespace,
    "a namespace comes, with a pod": Cluster.put_namespace,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_change_between_any_two_steps_is_in_the_result(change: Callable[[Cluster], None]) -> None:
    """Also in the last one, in which the change log is read and the nodes are exchanged: nothing may come between."""
    want = Cluster(PLACEMENT)
    change(want)
    is_over, step = False, 0
    while not is_over:
        step += 1
        cluster = Cluster()
        task = asyncio.create_task(apply_placement(cluster.ledger, PLACEMENT, cluster.labels))
        for _ in range(step):
            await asyncio.sleep(0)
        is_over = task.done()
        change(cluster)
        await task
        assert cluster.ledger.list_nodes() == want.ledger.list_nodes(), step
        assert cluster.ledger.list_node_names() == want.ledger.list_node_names(), step
        assert cluster.list_unbound() == want.list_unbound(), step
        assert not any(count_drift_units(cluster.ledger, name) for name in cluster.ledger.list_node_names()), step
    assert step > NODES // 10 * 2
