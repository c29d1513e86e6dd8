"""Nodes grouped by what a policy can see of them: nodes of one state have one score, whatever their names.

A policy that packs leaves most nodes full or untouched, so thousands of nodes are in a few hundred states, and a state
that comes into being is scored once for each request, not once for each node and change.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import TypeAlias

from policies.engine.host_rooms import HostRooms
from policies.engine.node_summary_index import NodeSummaryIndex
from vrampack.cards.host_room import HostResources
from vrampack.cards.node_summary import NodeSummary

MIN_STATES_KEPT = 1024
"""The log of states is not shortened before it is so long."""

StateKey: TypeAlias = tuple[object, ...]


_get_number = attrgetter("number")


class NodeState:
    """The nodes that are alike. Without names it is gone: such nodes that come later are a new state."""

    __slots__ = ("names", "number", "summary")

    def __init__(self, number: int, summary: NodeSummary) -> None:
        self.number = number
        """Rises from state to state."""
        self.summary = summary
        self.names: list[str] = []
        """In order."""


class NodeStates:
    """Follows an index of summaries and the rooms of hosts."""

    def __init__(self, index: NodeSummaryIndex, hosts: HostRooms) -> None:
        self._index = index
        self._hosts = hosts
        self._index_generation = -1
        self._host_generation = -1
        self._states: dict[StateKey, NodeState] = {}
        self._by_name: dict[str, tuple[StateKey, NodeState]] = {}
        self._log: list[NodeState] = []
        """States by number; those that are gone are dropped now and then."""
        self.last_number = 0
        """Of the state that came into being last."""
        self._card_uses: Counter[tuple[int, int]] = Counter()
        """Usable cards by units and used units."""
        self.moves = 0
        """Rises with every node that comes into another state."""

    def follow_index(self) -> None:
        """Take up what changed since the last call."""
        changed = self._list_changed_names()
        for name in changed:
            self._put_node(name)
        if len(self._log) > MIN_STATES_KEPT + 4 * len(self._states):
            self._log = [state for state in self._log if state.names]

    def list_states_since(self, number: int) -> list[NodeState]:
        """The states that came into being after this one, but for some that are gone."""
        return self._log[bisect_right(self._log, number, key=_get_number) :]

    def count_leftovers(self) -> Mapping[tuple[int, int], int]:
        """How many used cards there are, by their units and free units."""
        return {
            (units, units - used): many for (units, used), many in self._card_uses.items() if many and 0 < used < units
        }

    def _list_changed_names(self) -> Iterable[str]:
        index, hosts = self._index.changes, self._hosts.changes
        if (index.generation, hosts.generation) == (self._index_generation, self._host_generation):
            return ()
        since_index = index.list_changed_since(self._index_generation)
        since_hosts = hosts.list_changed_since(self._host_generation)
        self._index_generation, self._host_generation = index.generation, hosts.generation
        if since_index is None or since_hosts is None:
            return {*self._index, *self._by_name}
        return {*since_index, *since_hosts}

    def _put_node(self, name: str) -> None:
        summary = self._index.get_summary(name)
        key = None if summary is None else build_state_key(summary, self._hosts.rooms.get(name))
        before = self._by_name.get(name)
        if before is not None:
            if before[0] == key:
                return
            self._remove_name(name, *before)
        if summary is None or key is None:
            return
        state = self._states.get(key)
        if state is None:
            self.last_number += 1
            state = self._states[key] = NodeState(self.last_number, summary)
            self._log.append(state)
        insort(state.names, name)
        self.moves += 1
        self._card_uses.update(summary.usable_cards)
        self._by_name[name] = key, state

    def _remove_name(self, name: str, key: StateKey, state: NodeState) -> None:
        del self._by_name[name]
        self._card_uses.subtract(state.summary.usable_cards)
        del state.names[bisect_left(state.names, name)]
        if not state.names:
            del self._states[key]


def build_state_key(summary: NodeSummary, host: HostResources | None) -> StateKey:
    """Equal keys: equal verdicts on every request that names no cards, and equal scores."""
    parts = None
    if summary.by_model is not None:
        parts = tuple((model, *_list_numbers(part)) for model, part in sorted(summary.by_model.items()))
    return *_list_numbers(summary), summary.models, summary.is_open, summary.needs_references, parts, host


def _list_numbers(summary: NodeSummary) -> Iterator[object]:
    yield tuple(sorted(summary.usable_cards))
    yield summary.card_units
    yield summary.free_units_if_usable
    yield summary.empty_card_units_if_usable
    yield summary.used_units
    yield summary.total_units
