"""The emptiest card: for pods whose speed matters more than the number of cards in use."""

from __future__ import annotations

from cards.node import Card, Node
from cards.outline import Outline
from cards.request import Request
from policies.policy import Demand, Ranked


def place(node: Node, fitting: tuple[Card, ...], request: Request, demand: Demand) -> Ranked:  # noqa: ARG001 - the shape of a policy
    """The cards with the smallest share in use after placing; between nodes, the smallest such share.

    Shares, not free units: by free units an 80-unit card would take the first five pods of a mixed node.
    """
    emptiest = tuple(sorted(fitting, key=lambda card: (_share(card, request), card.index))[: request.count])
    return Ranked(-max(_share(card, request) for card in emptiest), emptiest)


def _share(card: Card, request: Request) -> float:
    return 1.0 if request.whole else (card.used_units + request.units) / card.units


def score(node: Outline, request: Request, demand: Demand) -> float:  # noqa: ARG001 - the shape of a policy
    """The score that `place` gives, from the outline of a node that fits."""
    if request.whole:
        return -1.0
    shares = sorted((used + request.units) / units for units, used in node.usable if units - used >= request.units)
    return -shares[request.count - 1]
