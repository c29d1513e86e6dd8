"""The emptiest card: for pods whose speed matters more than the number of cards in use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policies.policy import Demand, Ranked
from vrampack.cards.node import Card, Node
from vrampack.cards.outline import Outline
from vrampack.cards.request import Request


def place(node: Node, fitting: tuple[Card, ...], request: Request, demand: Demand) -> Ranked:  # noqa: ARG001 - the shape of a policy
    """The cards with the smallest share in use after placing; between nodes, the smallest such share.

    Shares, not free units: by free units an 80-unit card would take the first five pods of a mixed node.
    """
    emptiest = tuple(sorted(fitting, key=lambda card: (_share(card, request), card.index))[: request.count])
    return Ranked(-max(_share(card, request) for card in emptiest), emptiest)


def _share(card: Card, request: Request) -> float:
    return 1.0 if request.whole else (card.used_units + request.units) / card.units


def scores(
    nodes: Iterable[tuple[str, Outline]],
    request: Request,
    demand: Demand,  # noqa: ARG001 - the shape of a policy
) -> Iterator[tuple[str, float]]:
    """The scores that `place` gives, from the outlines of nodes that fit."""
    for name, node in nodes:
        yield name, -1.0 if request.whole else -_shares(node, request)[request.count - 1]


def _shares(node: Outline, request: Request) -> list[float]:
    """In use on each card that takes the request after placing it, ascending."""
    units = request.units
    return sorted((used + units) / size for size, used in node.usable if size - used >= units)
