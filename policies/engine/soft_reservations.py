"""What the engine needs from soft reservations, and nodes with those of all pods counted as held."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from policies.engine.change_log import NodeChangeLog
from policies.engine.cluster_shapes import ClusterShapes, ShapesByName
from policies.engine.following import ChangeLog, LogFollower
from policies.engine.ledger_view import LedgerView
from policies.trial_placement import HeldCards, Placement, hold_on_node
from vrampack.cards.node import Node
from vrampack.cards.shape import Shape


class SoftReservationView(ChangeLog, Protocol):
    """Places named to the scheduler for pods that are not bound yet. A node changes with what is reserved on it."""

    def list_reserved_nodes(self) -> Collection[str]: ...

    def list_reserved_cards(self, name: str, uid: str | None = None) -> Sequence[HeldCards]:
        """Soft reservations on this node of all pods but `uid`: the same object until they change, if it has none there."""
        ...

    def list_placements(self, uid: str) -> Sequence[Placement]:
        """The places of the pod itself, at most one on each node."""
        ...


class NoSoftReservations(NodeChangeLog):
    """For callers that only need to know what fits."""

    def list_reserved_nodes(self) -> Collection[str]:
        return ()

    def list_reserved_cards(self, name: str, uid: str | None = None) -> Sequence[HeldCards]:  # noqa: ARG002 - of the protocol
        return ()

    def list_placements(self, uid: str) -> Sequence[Placement]:  # noqa: ARG002 - of the protocol
        return ()


@dataclass(frozen=True, slots=True)
class ReservedNode:
    """A node with every soft reservation counted as held, and the values it was built from."""

    source: Node
    reserved: Sequence[HeldCards]
    node: Node
    shape: Shape


class ReservedNodes(LogFollower):
    """Follows the nodes with soft reservations, after `cluster` has followed them."""

    def __init__(self, ledger: LedgerView, cluster: ClusterShapes, reservations: SoftReservationView) -> None:
        super().__init__(ledger, reservations)
        self.filled = ShapesByName(cluster.nodes)
        """As all pods find them that have no reservation there."""
        self._ledger = ledger
        self._reservations = reservations
        self._find_shape = cluster.known_shapes.find_shape
        self._nodes: dict[str, ReservedNode] = {}

    def get_reserved_node(self, node: Node, reserved: Sequence[HeldCards]) -> ReservedNode:
        """The node with these reservations held as well; cached until either changes."""
        known, filled, added = self._nodes.get(node.name), node, reserved
        if known is not None and known.source is node:
            if known.reserved is reserved:
                return known
            if known.reserved == reserved[: len(known.reserved)]:
                filled, added = known.node, reserved[len(known.reserved) :]
        filled = hold_on_node(filled, added)
        self._nodes[node.name] = built = ReservedNode(node, reserved, filled, self._find_shape(filled))
        return built

    def _list_all_names(self) -> Iterable[str]:
        return *self.filled.shapes, *self._reservations.list_reserved_nodes()

    def _put_node(self, name: str) -> None:
        reserved = self._reservations.list_reserved_cards(name)
        node = self._ledger.get_node(name, None) if reserved else None
        if node is None:
            self._nodes.pop(name, None)
        self.filled.put_shape(name, None if node is None else self.get_reserved_node(node, reserved).shape)
