"""What changed in the ledger and when: generations for followers that poll, and calls for listeners."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import takewhile

from extender.state.ledger_listener import LedgerListener
from extender.state.ledger_problems import LedgerProblem
from policies.engine.change_log import NodeChangeLog
from vrampack.cards.pod_group import GroupKey


class LedgerChanges:
    """Every change of one ledger is recorded here, inside its transaction."""

    def __init__(self) -> None:
        self.capacity_generation = 0
        """Rises with every change by which a node gains room, and with every change of the policy."""
        self.cards_generation = 0
        """Rises when a node comes or goes, or has other cards: why a pod can never fit there may have changed."""
        self._capacity_gained_at: dict[str, int] = {}
        """The capacity generation of each node, the latest last."""
        self.nodes = NodeChangeLog()
        self._listeners: list[LedgerListener] = []

    def add_listener(self, listener: LedgerListener) -> None:
        self._listeners.append(listener)

    def list_gained_since(self, generation: int) -> Iterator[tuple[str, int]]:
        """The nodes that gained room after this capacity generation, the latest first, each with that of its gain."""
        return takewhile(lambda each: each[1] > generation, reversed(self._capacity_gained_at.items()))

    def record_node_change(self, name: str) -> None:
        self.nodes.record_change(name)
        for listener in self._listeners:
            listener.on_node_changed()

    def record_all_changed(self, count: int) -> None:
        """Record that all nodes changed, `count` of them."""
        self.cards_generation += 1
        self.nodes.record_any_change()
        for listener in self._listeners:
            for _ in range(count):
                listener.on_node_changed()

    def record_capacity_gain(self, name: str) -> None:
        self.capacity_generation += 1
        self._capacity_gained_at.pop(name, None)
        self._capacity_gained_at[name] = self.capacity_generation
        self._tell_capacity_gained()

    def record_capacity_gains(self, names: Collection[str]) -> None:
        """Record that these nodes gained room, and drop the record of every other gain."""
        self.capacity_generation += 1
        self._capacity_gained_at = dict.fromkeys(names, self.capacity_generation)
        self._tell_capacity_gained()

    def forget_node(self, name: str, remaining: Collection[str]) -> None:
        """It is gone."""
        self._capacity_gained_at.pop(name, None)
        self.nodes.forget_removed_nodes(remaining)

    def tell_pod_added(self, uid: str) -> None:
        for listener in self._listeners:
            listener.on_pod_added(uid)

    def tell_group_changed(self, group: GroupKey) -> None:
        for listener in self._listeners:
            listener.on_group_changed(group)

    def tell_pod_resolved(self, uid: str) -> None:
        for listener in self._listeners:
            listener.on_pod_resolved(uid)

    def tell_problem_found(self, problem: LedgerProblem) -> None:
        for listener in self._listeners:
            listener.on_problem_found(problem)

    def _tell_capacity_gained(self) -> None:
        for listener in self._listeners:
            listener.on_capacity_gained()
