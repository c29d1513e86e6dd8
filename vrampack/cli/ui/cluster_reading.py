"""The cluster according to one round of lists: nodes with what listed pods hold, what others hold, and the sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from vrampack.cards.units import MIB
from vrampack.cli.explain.cluster import ExplainedCluster, NodeWithHolds
from vrampack.cli.ui.held_elsewhere import HeldElsewhere, UnitRange, compute_held_elsewhere
from vrampack.cli.ui.pod_scope import PodScope
from vrampack.cli.ui.section_size import estimate_section_bytes


@dataclass(frozen=True, slots=True)
class NodeOverview:
    """One node, with what listed pods hold and what others hold."""

    counted: NodeWithHolds
    elsewhere: HeldElsewhere
    section_bytes: int
    """An upper bound of the bytes that it takes on a page."""

    @property
    def name(self) -> str:
        return self.counted.node.name


@dataclass(frozen=True, slots=True)
class MemorySums:
    """MiB of the whole cluster; nodes may differ in their unit."""

    total_mib: int = 0
    held_mib: int = 0
    elsewhere_mib: UnitRange = field(default_factory=UnitRange)
    """MiB here."""
    card_count: int = 0
    problem_count: int = 0
    """How many nodes and cards take no new pods, or hold more than they have."""


@dataclass(frozen=True, slots=True)
class ClusterReading:
    """The result of one round of lists."""

    cluster: ExplainedCluster
    scope: PodScope
    nodes: tuple[NodeOverview, ...]
    """The nodes with cards, pods or a problem, by name."""
    sums: MemorySums
    read_at: datetime
    notes: tuple[str, ...] = ()
    """Notes about what could not be read."""
    may_list_nodes: bool = True


def build_reading(
    cluster: ExplainedCluster,
    scope: PodScope,
    held_bytes: Mapping[str, int],
    notes: Sequence[str] = (),
    *,
    may_list_nodes: bool = True,
) -> ClusterReading:
    """The reading of these lists. `held_bytes`: what all pods hold, by node, if known."""
    shown = [each for each in cluster.nodes.values() if each.node.cards or each.holds or each.node.problem]
    nodes = tuple(_build_node_overview(each, scope, held_bytes.get(each.node.name)) for each in shown)
    return ClusterReading(
        cluster, scope, nodes, _sum_nodes(nodes), datetime.now(UTC), tuple(notes), may_list_nodes=may_list_nodes
    )


def count_problems(counted: NodeWithHolds) -> int:
    """The problems of the node itself and of its cards."""
    cards = sum(not card.is_usable or card.is_overcommitted for card in counted.node.cards)
    return cards + bool(counted.node.problem)


def _build_node_overview(counted: NodeWithHolds, scope: PodScope, held_bytes: int | None) -> NodeOverview:
    node = counted.node
    held_units = None if held_bytes is None else held_bytes // (node.unit_mib * MIB)
    elsewhere = compute_held_elsewhere(node, is_complete=scope.is_complete, held_units=held_units)
    return NodeOverview(counted, elsewhere, estimate_section_bytes(counted))


def _sum_nodes(nodes: Sequence[NodeOverview]) -> MemorySums:
    units = [(each, each.counted.node.unit_mib) for each in nodes]
    return MemorySums(
        total_mib=sum(each.counted.node.total_units * mib for each, mib in units),
        held_mib=sum(min(card.used_units, card.units) * mib for each, mib in units for card in each.counted.node.cards),
        elsewhere_mib=UnitRange(
            sum(each.elsewhere.on_node.least * mib for each, mib in units),
            sum(each.elsewhere.on_node.most * mib for each, mib in units),
        ),
        card_count=sum(len(each.counted.node.cards) for each in nodes),
        problem_count=sum(count_problems(each.counted) for each in nodes),
    )
