"""Catches up with changed nodes: with all of them when asked, or with a few at a time, so that other calls have their turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from sys import maxsize

from policies.engine.change_log import NodeChangeLog
from policies.engine.stale_nodes import StaleNodes


class NodeFollower(ABC):
    """Something that is derived from nodes, one by one."""

    def __init__(self) -> None:
        self._stale_nodes = StaleNodes()
        """Nodes that are known to have changed, and whose change has not been applied."""

    def follow(self) -> None:
        """Apply all changes."""
        self.follow_slice(maxsize)

    def follow_slice(self, limit: int) -> bool:
        """Apply at most `limit` changes; true when more are left."""
        self._note_changes()
        if not self._stale_nodes:
            return False
        for name in self._stale_nodes.take_slice(limit):
            self._put_node(name)
        return bool(self._stale_nodes)

    def has_more_changes_than(self, limit: int) -> bool:
        self._note_changes()
        return len(self._stale_nodes) > limit

    @abstractmethod
    def _note_changes(self) -> None:
        """Add the nodes that changed since the last time to the stale ones."""

    @abstractmethod
    def _put_node(self, name: str) -> None:
        """Apply the node's present state: it is new, another, gone, or as before."""


class ChangeReader:
    """Reads a log of changes from where it stopped."""

    def __init__(self, log: NodeChangeLog) -> None:
        self._log = log
        self._generation = -1

    def read_changes(self) -> Collection[str] | None:
        """The nodes that changed since the last time; None: any may have."""
        if self._log.generation == self._generation:
            return ()
        changed = self._log.list_changed_since(self._generation)
        self._generation = self._log.generation
        return changed
