"""Nodes with every soft reservation counted as held, cached until the node or its reservations change."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from policies.trial_placement import hold_on_node
from vrampack.cards.node import Node
from vrampack.cards.request import CardRequest
from vrampack.cards.shape import Shape, Shapes

ReservedCards = tuple[Collection[int], CardRequest]
"""Cards of a node by index, and the request for which they are reserved."""
MIN_NODES_KEPT = 64
"""At least this many are cached, however few nodes have reservations."""


@dataclass(frozen=True, slots=True)
class ReservedNode:
    """Such a node, with the values it was built from."""

    source: Node
    reserved: Sequence[ReservedCards]
    node: Node
    shape: Shape


class ReservedNodes:
    """Reserved nodes by name. Callers pass the same reservations object until the reservations change."""

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes
        self._nodes: dict[str, ReservedNode] = {}

    def get_reserved_node(self, node: Node, reserved: Sequence[ReservedCards]) -> ReservedNode:
        """The node with these reservations held as well."""
        known = self._nodes.get(node.name)
        if known is not None and known.source is node and known.reserved is reserved:
            return known
        filled = node
        for indices, request in reserved:
            filled = hold_on_node(filled, indices, request)
        self._nodes[node.name] = built = ReservedNode(node, reserved, filled, self._shapes.find_shape(filled))
        return built

    def drop_unreserved_nodes(self, reserved_by_node: Mapping[str, object]) -> None:
        """Drop nodes without reservations once they are the majority."""
        if len(self._nodes) > 2 * len(reserved_by_node) + MIN_NODES_KEPT:
            self._nodes = {name: each for name, each in self._nodes.items() if name in reserved_by_node}
