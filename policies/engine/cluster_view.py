"""All nodes as the pods of one priority floor find them: summaries that follow the ledger, node by node."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from sys import maxsize
from typing import Protocol

from policies.engine.cluster_summaries import ClusterSummaries
from policies.engine.node_summary_index import NodeSummaryIndex
from policies.engine.stale_nodes import StaleNodes
from vrampack.cards.node import Node
from vrampack.cards.node_summary import summarize_node

PriorityFloor = int | None
"""Cards that are kept for nominated pods of at least this priority count as used; None: no card is kept from these pods."""


class LedgerView(Protocol):
    """What the engine needs of a ledger: nodes as they are now, and which of them changed."""

    @property
    def generation(self) -> int:
        """Rises with every change to any node, or to what is kept on it."""
        ...

    def list_nodes_changed_since(self, generation: int) -> Collection[str] | None:
        """The nodes that changed, came or went after that generation. None: no longer known, assume all nodes."""
        ...

    def list_node_names(self) -> Collection[str]: ...

    def list_nodes_with_kept_cards(self) -> Iterable[str]:
        """The nodes that differ between floors."""
        ...

    def get_priority_floor(self, uid: str) -> PriorityFloor: ...

    def get_kept_generation(self, floor: PriorityFloor) -> int:
        """Rises whenever the kept cards of any node change under this floor."""
        ...

    def get_node(self, name: str, floor: PriorityFloor) -> Node | None:
        """The same object until the node changes."""
        ...

    def get_node_for_pod(self, name: str, uid: str) -> Node | None:
        """The node as the pod `uid` finds it: cards kept for it are free, cards kept for others are not."""
        ...

    def list_pod_specific_nodes(self, uid: str) -> Collection[str]:
        """The nodes that look different to this pod than to other pods of its floor."""
        ...


class ClusterView:
    """The view without a floor: that of pods from which no card is kept."""

    def __init__(self, ledger: LedgerView) -> None:
        self.summaries = ClusterSummaries()
        self._ledger = ledger
        self._generation = 0
        self._stale_nodes = StaleNodes()
        """Nodes that changed up to this generation and have not been summarized again."""

    @property
    def index(self) -> NodeSummaryIndex:
        return self.summaries.index

    def forget_all(self) -> None:
        """Summarize all nodes again at the next call."""
        self.summaries.forget_all()
        self._generation = 0
        self._stale_nodes = StaleNodes()

    def follow_ledger(self) -> None:
        """Summarize again what changed since the last call."""
        self.follow_slice(maxsize)

    def follow_slice(self, limit: int) -> bool:
        """The same for at most `limit` nodes; true when more are left."""
        generation = self._ledger.generation
        if generation != self._generation:
            changed = self._ledger.list_nodes_changed_since(self._generation)
            if changed is None:
                self.index.drop_groups()
                changed = [*self.summaries.list_names(), *self._ledger.list_node_names()]
            self._stale_nodes |= dict.fromkeys(changed)
            self._generation = generation
        for name in self._stale_nodes.take_slice(limit):
            self.summaries.put_node(name, self._ledger.get_node(name, None))
        return bool(self._stale_nodes)


class FloorView:
    """The view of one floor: for nodes without kept cards it shares the summaries of the view without a floor."""

    def __init__(self, ledger: LedgerView, floor: int, base: ClusterView) -> None:
        self.index = NodeSummaryIndex()
        self._ledger = ledger
        self._floor = floor
        self._base = base
        self._generation: int | None = None
        self._filled_nodes: dict[str, Node] = {}
        """The nodes with kept cards, as they were last summarized."""
        self._stale_nodes = StaleNodes()
        """As in `ClusterView`."""

    @property
    def summaries(self) -> ClusterSummaries:
        """The summaries of the view without a floor, as the hardware is the same."""
        return self._base.summaries

    def follow_ledger(self) -> None:
        """Summarize again what changed since the last call."""
        self.follow_slice(maxsize)

    def follow_slice(self, limit: int) -> bool:
        """The same for at most `limit` nodes; true when more are left."""
        if self._base.follow_slice(limit):
            return True
        generation = self._ledger.generation
        if generation != self._generation:
            self._list_stale_nodes()
            self._generation = generation
        for name in self._stale_nodes.take_slice(limit):
            self._put_summary(name)
        return bool(self._stale_nodes)

    def _list_stale_nodes(self) -> None:
        changed = None if self._generation is None else self._ledger.list_nodes_changed_since(self._generation)
        if changed is None:
            self.index.copy_from(self._base.index)
            self._filled_nodes.clear()
            changed = list(self._ledger.list_nodes_with_kept_cards())
        self._stale_nodes |= dict.fromkeys(changed)

    def _put_summary(self, name: str) -> None:
        node = self._ledger.get_node(name, self._floor)
        if node is None or node is self._base.summaries.get_node(name):
            self._filled_nodes.pop(name, None)
            self.index.put_summary(name, self._base.index.get_summary(name))
        elif node is not self._filled_nodes.get(name):
            self._filled_nodes[name] = node
            self.index.put_summary(name, summarize_node(node))
