"""What the engine needs from soft reservations, and nodes with those of all pods counted as held."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from policies.trial_placement import Placement, hold_on_node
from vrampack.cards.node import Node
from vrampack.cards.request import CardRequest
from vrampack.cards.shape import Shape, Shapes

ReservedCards = tuple[Collection[int], CardRequest]
"""Cards of a node by index, and the request for which they are reserved."""
MIN_NODES_KEPT = 64
"""At least this many are cached, however few nodes have reservations."""


class SoftReservationView(Protocol):
    """Places named to the scheduler for pods that are not bound yet."""

    def list_reserved_for_others(self, uid: str) -> Mapping[str, Sequence[ReservedCards]]:
        """Soft reservations of other pods, by node: the same object until they change."""
        ...

    def get_placement(self, uid: str) -> Placement | None:
        """The soft reservation of the pod itself."""
        ...


class NoSoftReservations:
    """For callers that only need to know what fits."""

    def list_reserved_for_others(self, uid: str) -> Mapping[str, Sequence[ReservedCards]]:  # noqa: ARG002 - of the protocol
        return {}

    def get_placement(self, uid: str) -> Placement | None:  # noqa: ARG002 - of the protocol
        return None


@dataclass(frozen=True, slots=True)
class ReservedNode:
    """A node with every soft reservation counted as held, and the values it was built from."""

    source: Node
    reserved: Sequence[ReservedCards]
    node: Node
    shape: Shape


class ReservedNodes:
    """Reserved nodes by name, cached until the node or its reservations change. Callers pass the same reservations object until the reservations change."""

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
