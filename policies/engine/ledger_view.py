"""What the engine needs of a ledger: nodes as they are now, and which of them changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from policies.engine.following import ChangeLog
from vrampack.cards.node import Node

PriorityFloor = int | None
"""Cards that are kept for nominated pods of at least this priority count as used; None: no card is kept from these pods."""


class LedgerView(ChangeLog, Protocol):
    """The nodes, and the cards that are kept on them for nominated pods. What is kept on a node changes it, too."""

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
