"""The fullest node, then its tightest card: keeps whole nodes empty, so that an autoscaler can remove them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policies.policy import Demand, Ranked
from vrampack.cards.node import Card, Node
from vrampack.cards.outline import Outline, tightest
from vrampack.cards.request import Request


def place(node: Node, fitting: tuple[Card, ...], request: Request, demand: Demand) -> Ranked:  # noqa: ARG001 - the shape of a policy
    """The tightest cards; between nodes, the one whose memory is in use to the largest share after placing."""
    tightest = tuple(sorted(fitting, key=lambda card: (card.free_units, card.index))[: request.count])
    added = sum(card.units if request.whole else request.units for card in tightest)
    return Ranked((node.used_units + added) / node.total_units, tightest)


def scores(
    nodes: Iterable[tuple[str, Outline]],
    request: Request,
    demand: Demand,  # noqa: ARG001 - the shape of a policy
) -> Iterator[tuple[str, float]]:
    """The scores that `place` gives, from the outlines of nodes that fit."""
    for name, node in nodes:
        added = sum(tightest(node, request)) if request.whole else request.units * request.count
        yield name, (node.used_units + added) / node.total_units
