"""Whether the sums that the ledger keeps are those of a fresh count."""

from __future__ import annotations

from extender.state.ledger import Ledger
from vrampack.cards.scheduler_totals import count_unasked_units


def count_drift_units(ledger: Ledger, name: str) -> int:
    """Units by which the node's sums differ from a fresh count; anything but 0 is a bug."""
    node, fresh = ledger.get_node(name), ledger.nodes.recount_node(name)
    if node is None or fresh is None:
        return 0
    if len(fresh.cards) != len(node.cards):
        return max(fresh.total_units, node.total_units)
    facts = ledger.nodes.get_facts(name)
    unasked = None if facts is None else count_unasked_units(facts, ledger.list_holds(name))
    drift = sum(
        abs(a.used_units - b.used_units) + (a.taken != b.taken) for a, b in zip(fresh.cards, node.cards, strict=True)
    )
    return drift + (unasked != ledger.nodes.get_unasked_units(name))
