"""Catches up with changed nodes: with all of them when asked, or with a few at a time, so that other calls have their turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from itertools import islice
from sys import maxsize
from typing import Protocol


class ChangeLog(Protocol):
    """Which nodes changed since when."""

    @property
    def generation(self) -> int:
        """Rises with every change to any node."""
        ...

    def list_nodes_changed_since(self, generation: int) -> Collection[str] | None:
        """The nodes that changed, came or went after that generation. None: no longer known, assume all nodes."""
        ...


class NodeFollower(ABC):
    """Something that is derived from nodes, one by one."""

    def __init__(self) -> None:
        self._stale_nodes: dict[str, None] = {}
        """Nodes that are known to have changed, and whose change has not been applied, in the order of the changes."""

    def follow(self) -> None:
        """Apply all changes."""
        self.follow_slice(maxsize)

    def follow_slice(self, limit: int) -> bool:
        """Apply at most `limit` changes; true when more are left."""
        self._note_changes()
        if not self._stale_nodes:
            return False
        for name in list(islice(self._stale_nodes, limit)):
            self._put_node(name)
            del self._stale_nodes[name]
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


class LogFollower(NodeFollower):
    """Follows the nodes that change logs name, each log from where it stopped reading."""

    def __init__(self, *logs: ChangeLog) -> None:
        super().__init__()
        self._generations = dict.fromkeys(logs, -1)

    @abstractmethod
    def _list_all_names(self) -> Iterable[str]:
        """The nodes that it has or should have: what is followed when a log no longer knows its changes."""

    def _note_changes(self) -> None:
        for log, known in self._generations.items():
            generation = log.generation
            if generation != known:
                changed = log.list_nodes_changed_since(known)
                self._stale_nodes |= dict.fromkeys(self._list_all_names() if changed is None else changed)
                self._generations[log] = generation
