"""A listener of the ledger that records its notifications."""

from __future__ import annotations

from extender.state.ledger_problems import LedgerProblem
from vrampack.cards.pod_group import GroupKey


class LedgerRecorder:
    """A `LedgerListener`."""

    def __init__(self) -> None:
        self.node_changes = 0
        self.capacity_gains = 0
        self.added: list[str] = []
        self.resolved: list[str] = []
        self.problems: list[LedgerProblem] = []

    def on_node_changed(self) -> None:
        self.node_changes += 1

    def on_capacity_gained(self) -> None:
        self.capacity_gains += 1

    def on_pod_added(self, uid: str) -> None:
        self.added.append(uid)

    def on_group_changed(self, group: GroupKey) -> None:
        """Not recorded."""

    def on_pod_resolved(self, uid: str) -> None:
        self.resolved.append(uid)

    def on_problem_found(self, problem: LedgerProblem) -> None:
        self.problems.append(problem)
