"""All nodes as the pods of one priority floor find them: summaries that follow the ledger, node by node."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from policies.engine.hardware_index import HardwareIndex
from policies.engine.node_summary_index import NodeSummaryIndex
from vrampack.cards.node import Node
from vrampack.cards.node_summary import summarize_node

PriorityFloor = int | None
"""Cards that are kept for nominated pods of this or a higher priority are used; None: no card is kept from these pods."""


class LedgerView(Protocol):
    """What the engine needs of a ledger: nodes as they are now, and which of them changed."""

    @property
    def generation(self) -> int:
        """Rises with every change of any node, and of what is kept on it."""
        ...

    def list_nodes_changed_since(self, generation: int) -> Collection[str] | None:
        """The nodes that changed, came or went after that generation. None: not known any more, take all nodes."""
        ...

    def list_node_names(self) -> Collection[str]: ...

    def list_nodes_with_kept_cards(self) -> Iterable[str]:
        """The nodes that are not the same under every floor."""
        ...

    def get_priority_floor(self, uid: str) -> PriorityFloor: ...

    def get_kept_generation(self, floor: PriorityFloor) -> int:
        """Rises whenever other cards are kept, on any node, under this floor."""
        ...

    def get_node(self, name: str, floor: PriorityFloor) -> Node | None:
        """The same object until the node changes."""
        ...

    def get_node_for_pod(self, name: str, uid: str) -> Node | None:
        """The node as the pod `uid` finds it: what is kept for it is free, what is kept for others is not."""
        ...

    def list_pod_specific_nodes(self, uid: str) -> Collection[str]:
        """The nodes that this pod finds in another state than other pods of its floor do."""
        ...


class ClusterView:
    """Of one floor. One with a floor shares the summaries of the one without where no cards are kept."""

    def __init__(self, ledger: LedgerView, floor: PriorityFloor, base: ClusterView | None = None) -> None:
        self.index = NodeSummaryIndex()
        self.hardware: HardwareIndex = HardwareIndex() if base is None else base.hardware
        self._ledger = ledger
        self._floor = floor
        self._base = base
        self._generation = 0
        self._seen: dict[str, Node] = {}
        """Each node as it was when it was summarized: many changes are of what is kept there only."""

    def follow_ledger(self) -> None:
        """Summarize again what changed since the last call."""
        if self._base is not None:
            self._base.follow_ledger()
        generation = self._ledger.generation
        if generation == self._generation:
            return
        changed = self._ledger.list_nodes_changed_since(self._generation)
        if changed is None or self._generation == 0:
            changed = self._begin_again()
        for name in changed:
            self._update_node(name)
        self._generation = generation

    def _begin_again(self) -> Collection[str]:
        """What remains to be summarized."""
        self._seen.clear()
        if self._base is not None:
            self.index.copy_from(self._base.index)
            return list(self._ledger.list_nodes_with_kept_cards())
        self.index.clear()
        self.hardware.clear()
        return self._ledger.list_node_names()

    def _update_node(self, name: str) -> None:
        node = self._ledger.get_node(name, self._floor)
        if node is None:
            self._seen.pop(name, None)
        elif self._seen.get(name) is node:
            return
        else:
            self._seen[name] = node
        if self._base is None:
            self.hardware.put_node(name, node)
        elif node is self._ledger.get_node(name, None):
            self.index.put_summary(name, self._base.index.get_summary(name))
            return
        self.index.put_summary(name, None if node is None else summarize_node(node))
