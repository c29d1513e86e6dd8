"""What kube-scheduler itself counts on a node: the units that kubelet offers, less those that the node's pods ask for.

It refuses a pod that asks for more before it asks the extender, whatever is free on the cards: a pod that asks for 80 units
may hold a whole card of 79, and kubelet does not offer the units of a faulty card, whose pods count all the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from vrampack.cards.holding import Hold
from vrampack.cards.node import NodeFacts


def count_unasked_units(facts: NodeFacts, holds: Iterable[Hold]) -> int | None:
    """Units for which no pod of the node asks, below 0 if pods ask for more than is offered; None if the offer is unknown.

    A pod whose Binding was not answered does not count: the scheduler takes it for unbound.
    """
    if facts.offered_units is None:
        return None
    requests = [hold.pod.request for hold in holds if hold.state != "unconfirmed"]
    return facts.offered_units - sum([each.asked_units for each in requests if each is not None])


def has_gained_units(before: int | None, after: int | None) -> bool:
    """Whether the scheduler may let pods on the node that it refused by its own sum; None: no sum is known."""
    return before is not None and (after is None or after > max(before, 0))
