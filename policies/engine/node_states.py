"""Nodes grouped by what a policy can see of them: nodes of one state have one score, whatever their names.

A policy that packs leaves most nodes full or untouched, so thousands of nodes are in a few hundred states, and a new state
is scored once for each request, not once for each node and change.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeAlias

from policies.engine.cluster_shapes import ShapesByName
from policies.engine.following import LogFollower
from policies.engine.host_rooms import HostRooms
from vrampack.cards.host_room import HostResources
from vrampack.cards.shape import Shape

StateKey: TypeAlias = tuple[Shape, HostResources | None]


@dataclass(slots=True, eq=False)
class NodeState:
    """The nodes that are alike. A state without names is gone: if such nodes come later, they form a new state."""

    number: int
    """Rises from state to state."""
    shape: Shape
    host: HostResources | None
    names: list[str] = field(default_factory=list)
    """In order."""


class NodeStates(LogFollower):
    """Follows the shapes of nodes, those of `filled` in place of those of `source`, and the rooms of hosts."""

    def __init__(self, source: ShapesByName, filled: ShapesByName, hosts: HostRooms) -> None:
        super().__init__(source.changes, filled.changes, hosts.changes)
        self._shapes = source.shapes
        self._filled = filled.shapes
        self._rooms = hosts.rooms
        self._states: dict[StateKey, NodeState] = {}
        """Sorted by number."""
        self._by_name: dict[str, NodeState] = {}
        self.last_number = 0
        """The number of the newest state."""

    def __len__(self) -> int:
        return len(self._states)

    def list_states_since(self, number: int) -> list[NodeState]:
        """The states created after this one, without those that are gone."""
        return [*takewhile(lambda state: state.number > number, reversed(self._states.values()))][::-1]

    def _list_all_names(self) -> Iterable[str]:
        return *self._shapes, *self._by_name

    def _put_node(self, name: str) -> None:
        shape = self._filled.get(name) or self._shapes.get(name)
        host, before = self._rooms.get(name), self._by_name.get(name)
        if before is not None:
            if before.shape is shape and before.host == host:
                return
            self._remove_name(name, before)
        if shape is None:
            return
        state = self._states.get((shape, host))
        if state is None:
            self.last_number += 1
            state = self._states[shape, host] = NodeState(self.last_number, shape, host)
        insort(state.names, name)
        self._by_name[name] = state

    def _remove_name(self, name: str, state: NodeState) -> None:
        del self._by_name[name]
        del state.names[bisect_left(state.names, name)]
        if not state.names:
            del self._states[state.shape, state.host]
