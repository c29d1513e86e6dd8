"""A ledger with one node, and what it reported: for the tests of the ledger."""

from __future__ import annotations

from extender.state.ledger import Ledger
from tests.support.builders import UNIT_MIB, node_facts
from tests.support.ledger_recorder import LedgerRecorder
from vrampack.cards.allocation import Allocation, allocate_cards
from vrampack.cards.node import Node, NodeFacts, Share
from vrampack.cards.pod import Pod
from vrampack.cards.records import Record

OURS = Record("vrampack", (Share(4, "GPU-0", 0),))


class LedgerHarness:
    """A ledger with one node `n` of two cards of 15 units, and what it reported."""

    def __init__(self, facts: NodeFacts | None = None) -> None:
        self.recorder = LedgerRecorder()
        self.seconds = 0.0
        self.ledger = Ledger(unit_mib=UNIT_MIB, clock=lambda: self.seconds)
        self.ledger.add_listener(self.recorder)
        self.ledger.update_node(facts or node_facts("n", 15, 15))

    def used(self, name: str = "n") -> list[int]:
        return [card.used_units for card in self.node(name).cards]

    def node(self, name: str = "n") -> Node:
        node = self.ledger.get_node(name)
        assert node is not None
        return node

    def place(self, pod: Pod, *cards: int) -> Allocation:
        """An allocation of the pod's ask on the cards of these indices."""
        assert pod.request is not None
        return allocate_cards(self.node(), [self.node().cards[index] for index in cards], pod.request)

    def kinds(self) -> list[str]:
        return [problem.kind for problem in self.recorder.problems]
