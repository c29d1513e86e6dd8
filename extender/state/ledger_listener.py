"""The interface through which the ledger announces changes."""

from __future__ import annotations

from typing import Protocol

from extender.state.ledger_problems import LedgerProblem
from vrampack.cards.pod_group import GroupKey


class LedgerListener(Protocol):
    """Is told of changes at once, inside the transaction: it must not call a method that changes the ledger."""

    def on_node_changed(self) -> None:
        """Some node changed, came or went; `Ledger.generation` has risen."""

    def on_capacity_gained(self) -> None:
        """Some node gained room; `Ledger.capacity_generation` has risen."""

    def on_pod_added(self, uid: str) -> None:
        """A new unbound pod is known."""

    def on_group_changed(self, group: GroupKey) -> None:
        """A pod of the group came, was bound or asks for something else."""

    def on_pod_resolved(self, uid: str) -> None:
        """The pod is bound or terminating, or is gone: it no longer needs a place."""

    def on_problem_found(self, problem: LedgerProblem) -> None:
        """A node has a problem that it did not have at its last count."""
