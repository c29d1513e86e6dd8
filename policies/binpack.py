"""Best fit over the cards of the whole cluster: take the card on which the least stays free.

The strongest simple default: small pods fill cards that are in use, and large cards stay whole for large pods.
"""

from __future__ import annotations

from cards.node import Card, Node
from cards.outline import Outline, tightest
from cards.request import Request
from policies.policy import Demand, Ranked


def place(node: Node, fitting: tuple[Card, ...], request: Request, demand: Demand) -> Ranked:  # noqa: ARG001 - the shape of a policy
    """The tightest cards; between nodes, the one that leaves the fewest units free on the cards taken."""
    tightest = tuple(sorted(fitting, key=lambda card: (card.free_units, card.index))[: request.count])
    return Ranked(-sum(card.free_units for card in tightest), tightest)


def score(node: Outline, request: Request, demand: Demand) -> float:  # noqa: ARG001 - the shape of a policy
    """The score that `place` gives, from the outline of a node that fits."""
    return -sum(tightest(node, request))
