"""The shapes of all nodes by name, and those of the nodes that pods of one priority floor find in another state."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from policies.engine.change_log import NodeChangeLog
from policies.engine.following import LogFollower
from policies.engine.hardware_index import HardwareIndex
from policies.engine.ledger_view import LedgerView
from vrampack.cards.node import Node
from vrampack.cards.shape import Shape, Shapes


class ShapesByName:
    """A node changes when it gets another shape. The changes of `remembered` nodes stay known while they have no shape here."""

    def __init__(self, remembered: Collection[str] | None = None) -> None:
        self.shapes: dict[str, Shape] = {}
        self.changes = NodeChangeLog()
        self._remembered = self.shapes if remembered is None else remembered

    def put_shape(self, name: str, shape: Shape | None) -> None:
        """Replace the node's shape; None removes it."""
        if self.shapes.get(name) is shape:
            return
        if shape is None:
            del self.shapes[name]
            self.changes.forget_removed_nodes(self._remembered)
        else:
            self.shapes[name] = shape
        self.changes.record_change(name)


class ClusterShapes(ShapesByName):
    """As all pods find the nodes from which no card is kept. Fed every node that changes."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: dict[str, Node] = {}
        self.hardware = HardwareIndex()
        self.names_by_tenant: dict[bytes, dict[str, None]] = {}
        """The nodes with pods of each tenant, where rules ask for tenants."""
        self.known_shapes = Shapes()

    def get_shape(self, node: Node) -> Shape | None:
        """The shape of this state of the node, if it has been followed."""
        return self.shapes[node.name] if self.nodes.get(node.name) is node else None

    def put_node(self, name: str, node: Node | None) -> None:
        """Replace the node; None removes it."""
        known = self.nodes.get(name)
        if known is node:
            return
        before, shape = self.shapes.get(name), None if node is None else self.known_shapes.find_shape(node)
        if before is not shape:
            self._put_tenants(name, before, shape)
            self.put_shape(name, shape)
        self.hardware.put_node(name, node)
        if node is None:
            del self.nodes[name]
        else:
            self.nodes[name] = node

    def replace_nodes(self, nodes: Iterable[Node]) -> None:
        """Replace all nodes by these."""
        by_name = {node.name: node for node in nodes}
        for name in self.nodes.keys() - by_name.keys():
            self.put_node(name, None)
        for name, node in by_name.items():
            self.put_node(name, node)

    def copy(self) -> ClusterShapes:
        """A copy that does not change, for another thread; it takes 2 ms with 5,000 nodes."""
        copy = ClusterShapes()
        copy.nodes, copy.shapes = dict(self.nodes), dict(self.shapes)
        copy.names_by_tenant = {tenant: dict(names) for tenant, names in self.names_by_tenant.items()}
        copy.hardware = self.hardware.copy()
        return copy

    def _put_tenants(self, name: str, before: Shape | None, after: Shape | None) -> None:
        for tenant in () if before is None else before.tenants:
            del self.names_by_tenant[tenant][name]
            if not self.names_by_tenant[tenant]:
                del self.names_by_tenant[tenant]
        for tenant in () if after is None else after.tenants:
            self.names_by_tenant.setdefault(tenant, {})[name] = None


class LedgerFollower(LogFollower):
    """Feeds the nodes of a ledger into `cluster`."""

    def __init__(self, ledger: LedgerView) -> None:
        super().__init__(ledger)
        self.cluster = ClusterShapes()
        self._ledger = ledger

    def _list_all_names(self) -> Iterable[str]:
        return *self.cluster.nodes, *self._ledger.list_node_names()

    def _put_node(self, name: str) -> None:
        self.cluster.put_node(name, self._ledger.get_node(name, None))


class FloorFollower(LogFollower):
    """Follows the nodes with cards that are kept from pods of one floor, after `cluster` has followed them."""

    def __init__(self, ledger: LedgerView, floor: int, cluster: ClusterShapes) -> None:
        super().__init__(ledger)
        self.kept = ShapesByName()
        self._ledger = ledger
        self._floor = floor
        self._cluster = cluster

    def _list_all_names(self) -> Iterable[str]:
        return *self.kept.shapes, *self._ledger.list_nodes_with_kept_cards()

    def _put_node(self, name: str) -> None:
        node = self._ledger.get_node(name, self._floor)
        if node is self._cluster.nodes.get(name):
            node = None  # all pods find it alike
        self.kept.put_shape(name, None if node is None else self._cluster.known_shapes.find_shape(node))
