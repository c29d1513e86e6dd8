"""Nodes grouped by what a policy can see of them: nodes of one state have one score, whatever their names.

A policy that packs leaves most nodes full or untouched, so thousands of nodes are in a few hundred states, and a new state
is scored once for each request, not once for each node and change.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Mapping
from sys import maxsize
from typing import TypeAlias

from policies.engine.host_rooms import HostRooms
from policies.engine.node_summary_index import NodeSummaryIndex
from policies.engine.stale_nodes import StaleNodes
from vrampack.cards.host_room import HostResources
from vrampack.cards.node_summary import EquivalenceClass, NodeSummary, RequestKind, find_equivalence_class

MAX_KINDS = 8
"""How many request kinds have their class stored with a state, at 0.1 KB each."""

StateKey: TypeAlias = tuple[object, ...]


class NodeState:
    """The nodes that are alike. A state without names is gone: if such nodes come later, they form a new state."""

    __slots__ = ("_classes", "largest_free_units", "names", "number", "summary")

    def __init__(self, number: int, summary: NodeSummary) -> None:
        self.number = number
        """Rises from state to state."""
        self.summary = summary
        self.largest_free_units = summary.free_units[-1] if summary.free_units else -1
        """Of one card."""
        self.names: list[str] = []
        """In order."""
        self._classes: dict[RequestKind, EquivalenceClass] = {}

    def find_equivalence_class(self, kind: RequestKind) -> EquivalenceClass:
        """The class of these nodes for requests of this kind, cached: a state is compared with many requests of few kinds."""
        known = self._classes.get(kind)
        if known is None:
            known = self._classes[kind] = find_equivalence_class(self.summary, kind)
            if len(self._classes) > MAX_KINDS:
                del self._classes[next(iter(self._classes))]
        return known


class NodeStates:
    """Follows an index of summaries and the rooms of hosts."""

    def __init__(self, index: NodeSummaryIndex, hosts: HostRooms) -> None:
        self._index = index
        self._hosts = hosts
        self._index_generation = -1
        self._host_generation = -1
        self._stale_nodes = StaleNodes()
        """Nodes that changed up to these generations and have not been grouped again."""
        self._states: dict[StateKey, NodeState] = {}
        self._by_name: dict[str, tuple[StateKey, NodeState]] = {}
        self._by_number: dict[int, NodeState] = {}
        """The same states, sorted by number."""
        self.last_number = 0
        """The number of the newest state."""
        self.moves = 0
        """Rises with every node that changes its state."""

    def __len__(self) -> int:
        return len(self._states)

    def follow_index(self) -> None:
        """Group again the nodes that changed since the last call."""
        self.follow_slice(maxsize)

    def follow_slice(self, limit: int) -> bool:
        """The same for at most `limit` nodes; true when more are left."""
        self._list_changes()
        for name in self._stale_nodes.take_slice(limit):
            self._put_node(name)
        return bool(self._stale_nodes)

    def has_more_changes_than(self, limit: int) -> bool:
        """Whether more than `limit` nodes have to be grouped again."""
        self._list_changes()
        return len(self._stale_nodes) > limit

    def _list_changes(self) -> None:
        changed = self._list_changed_names()
        if changed:
            self._stale_nodes |= dict.fromkeys(changed)

    def list_states_since(self, number: int) -> list[NodeState]:
        """The states created after this one, without those that are gone."""
        new_states = []
        for state in reversed(self._by_number.values()):
            if state.number <= number:
                break
            new_states.append(state)
        new_states.reverse()
        return new_states

    def count_leftovers(self) -> Mapping[tuple[int, int], int]:
        """How many used cards there are, by their units and free units; takes a pass over all states."""
        leftovers: Counter[tuple[int, int]] = Counter()
        for state in self._states.values():
            for units, used in state.summary.usable_cards:
                if 0 < used < units:
                    leftovers[units, units - used] += len(state.names)
        return leftovers

    def _list_changed_names(self) -> Collection[str]:
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
            self._by_number[state.number] = state
        insort(state.names, name)
        self.moves += 1
        self._by_name[name] = key, state

    def _remove_name(self, name: str, key: StateKey, state: NodeState) -> None:
        del self._by_name[name]
        del state.names[bisect_left(state.names, name)]
        if not state.names:
            del self._states[key]
            del self._by_number[state.number]


def build_state_key(summary: NodeSummary, host: HostResources | None) -> StateKey:
    """The key of a node's state: equal keys give equal scores, and equal verdicts on every request that names no cards."""
    parts = None
    if summary.by_model is not None:
        parts = tuple([(model, _get_numbers(part)) for model, part in sorted(summary.by_model.items())])
    ruled = _get_ruled_numbers(summary)
    return _get_numbers(summary), summary.models, summary.is_open, summary.needs_references, parts, ruled, host


def _get_ruled_numbers(summary: NodeSummary) -> tuple[object, ...] | None:
    """What rules know about the cards; None if they concern none of them."""
    cards = summary.node.placeable_cards
    if not any(card.is_ruled for card in cards):
        return None
    return tuple(
        sorted(
            (
                card.model,
                card.units,
                card.used_units,
                card.is_usable,
                -1 if card.free_pods is None else card.free_pods,
                -1 if card.reserve is None else card.reserve,
                tuple(sorted(card.tenants)),
            )
            for card in cards
            if card.units
        )
    )


def _get_numbers(summary: NodeSummary) -> tuple[object, ...]:
    return (
        tuple(sorted(summary.usable_cards)),
        summary.card_units,
        summary.free_units_if_usable,
        summary.empty_card_units_if_usable,
        summary.used_units,
        summary.total_units,
    )
