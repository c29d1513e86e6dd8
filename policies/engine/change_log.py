"""Which nodes changed since when, for readers that follow at their own pace."""

from __future__ import annotations

from collections.abc import Collection
from itertools import takewhile

REMOVED_NODES_KEPT = 256
"""How many removed nodes are remembered beyond the number of existing nodes, so that frequent readers miss none."""


class NodeChangeLog:
    """The generation of each node's last change."""

    def __init__(self) -> None:
        self.generation = 0
        """Rises with every change to any node."""
        self._changed: dict[str, int] = {}
        """The generation of each node's last change, in ascending order; removed nodes stay for a while."""
        self._forgotten_generation = 0
        """Changes up to this generation may be missing in `_changed`."""

    def record_any_change(self) -> None:
        """Any node may have changed."""
        self.generation += 1
        self._changed.clear()
        self._forgotten_generation = self.generation

    def record_change(self, name: str) -> None:
        """The node changed, came or went."""
        self.generation += 1
        self._changed.pop(name, None)  # so that it moves to the end
        self._changed[name] = self.generation

    def list_nodes_changed_since(self, generation: int) -> list[str] | None:
        """The nodes that changed, came or went after that generation; None when it is too old to tell: assume all."""
        if generation < self._forgotten_generation:
            return None
        newer = takewhile(lambda change: change[1] > generation, reversed(self._changed.items()))
        return [name for name, _ in newer]

    def forget_removed_nodes(self, node_names: Collection[str]) -> None:
        """Forget all but these nodes once the others are the majority: an autoscaler adds and removes nodes without end."""
        if len(self._changed) > 2 * len(node_names) + REMOVED_NODES_KEPT:
            self._changed = {name: generation for name, generation in self._changed.items() if name in node_names}
            self._forgotten_generation = self.generation
