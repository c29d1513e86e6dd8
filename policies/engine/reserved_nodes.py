"""Nodes as they would be if all that is promised there were held: made once, and kept until node or promises change."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from policies.trial_placement import hold_on_node
from vrampack.cards.node import Node
from vrampack.cards.node_summary import NodeSummary, summarize_node
from vrampack.cards.request import CardRequest

ReservedCards = tuple[Collection[int], CardRequest]
"""Cards of a node by index, and what is asked of each of them."""
MIN_NODES_KEPT = 64
"""So many are kept whatever is promised."""


@dataclass(frozen=True, slots=True)
class ReservedNode:
    """One of them, and what it is made of."""

    source: Node
    reserved: Sequence[ReservedCards]
    node: Node
    summary: NodeSummary


class ReservedNodes:
    """By node name. Promises on one node are one object as long as they are the same."""

    def __init__(self) -> None:
        self._nodes: dict[str, ReservedNode] = {}

    def get_reserved_node(self, node: Node, reserved: Sequence[ReservedCards]) -> ReservedNode:
        """The node with these places held as well."""
        known = self._nodes.get(node.name)
        if known is not None and known.source is node and known.reserved is reserved:
            return known
        full = node
        for indices, request in reserved:
            full = hold_on_node(full, indices, request)
        self._nodes[node.name] = found = ReservedNode(node, reserved, full, summarize_node(full))
        return found

    def drop_unreserved_nodes(self, reserved_by_node: Mapping[str, object]) -> None:
        """Keep what is promised still, if that would be much less."""
        if len(self._nodes) > 2 * len(reserved_by_node) + MIN_NODES_KEPT:
            self._nodes = {name: each for name, each in self._nodes.items() if name in reserved_by_node}
