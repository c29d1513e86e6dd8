"""A ledger for the engine: nodes that a test adds and removes."""

from __future__ import annotations

from collections.abc import Iterable

from policies.engine.ledger_view import PriorityFloor
from vrampack.cards.node import Node


class FakeLedger:
    """Nodes by name and the generations of their changes; some pods find a node in another state than others do."""

    def __init__(self, cluster: Iterable[Node] = ()) -> None:
        self.nodes: dict[str, Node] = {}
        self.private: dict[tuple[str, str], Node] = {}
        self.kept: dict[tuple[str, PriorityFloor], Node] = {}
        self.floors: dict[str, int] = {}
        self.generation = 0
        self.is_forgetful = False
        self.asked: list[int] = []
        """The generations whose later changes were requested."""
        self._changes: list[tuple[int, str]] = []
        self.put(*cluster)

    def get_node(self, name: str, floor: PriorityFloor = None) -> Node | None:
        return self.kept.get((name, floor)) or self.nodes.get(name)

    def get_node_for_pod(self, name: str, uid: str) -> Node | None:
        return self.private.get((name, uid)) or self.get_node(name, self.get_priority_floor(uid))

    def list_node_names(self) -> set[str]:
        return set(self.nodes)

    def list_nodes_with_kept_cards(self) -> list[str]:
        return [name for name, _ in self.kept]

    def get_priority_floor(self, uid: str) -> PriorityFloor:
        return self.floors.get(uid)

    def get_kept_generation(self, floor: PriorityFloor) -> int:
        return 0 if floor is None else self.generation

    def list_pod_specific_nodes(self, uid: str) -> list[str]:
        return [name for name, owner in self.private if owner == uid]

    def list_nodes_changed_since(self, generation: int) -> list[str] | None:
        self.asked.append(generation)
        return None if self.is_forgetful or generation < 0 else [name for at, name in self._changes if at > generation]

    def put(self, *cluster: Node) -> None:
        for node in cluster:
            self.nodes[node.name] = node
            self._changed(node.name)

    def take(self, name: str) -> None:
        del self.nodes[name]
        self._changed(name)

    def _changed(self, name: str) -> None:
        self.generation += 1
        self._changes.append((self.generation, name))
