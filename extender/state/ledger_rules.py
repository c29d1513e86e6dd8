"""The rules in force, as the ledger needs them: what they demand of pods, and which cards they reserve."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vrampack.cards.holding import Hold, build_node_from_holds
from vrampack.cards.node import Card, Node, NodeFacts
from vrampack.cards.rules import PlacementRules, ReservedCardIndex


class LedgerRules:
    """Is fed every node that changes. New rules are a new object, which is first fed all nodes."""

    def __init__(self, rules: PlacementRules, *, unit_mib: int) -> None:
        self.rules = rules
        self._unit_mib = unit_mib
        self._reserved_cards = ReservedCardIndex(rules.reserves, unit_mib=unit_mib)

    def put_node(self, name: str, facts: NodeFacts | None) -> set[str]:
        """Replace or, with None, remove a node. Returns it and the nodes whose reserved cards changed with it."""
        return {name} | self._reserved_cards.put_node(name, facts)

    def build_node(self, facts: NodeFacts, holds: Iterable[Hold], known_cards: Sequence[Card] = ()) -> Node:
        return build_node_from_holds(
            facts,
            holds,
            unit_mib=self._unit_mib,
            rules=self.rules,
            reserves=self._reserved_cards.list_reserves(facts.name),
            known_cards=known_cards,
        )
