"""Lays requests one after another onto copies of nodes: what fits *together*, as the policies would place it.

Pure: nodes in, places out; the nodes that were given stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cards.node import Card, Node
from cards.request import Request
from policies.judging import judge
from policies.policy import Demand, Ranked
from policies.tuning import PolicyName


@dataclass(frozen=True, slots=True)
class Laid:
    """A place for a request: the node, and the cards by index."""

    node_name: str
    cards: tuple[int, ...]
    score: float = 0.0

    def is_better_than(self, other: Laid | None) -> bool:
        """By score, ties by node name: as everywhere."""
        return other is None or (-self.score, self.node_name) < (-other.score, other.node_name)


class Layout:
    """Copies of some nodes, and what was laid on them."""

    def __init__(self, nodes: Iterable[Node], demand: Demand | None = None) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._demand = demand or Demand()

    def best(
        self, request: Request, policy: PolicyName, names: Iterable[str], *, or_else: Laid | None = None
    ) -> Laid | None:
        """The best place on the named nodes, or `or_else` where none is better. Slice by slice it is the best of all."""
        best = or_else
        for name in names:
            node = self._nodes[name]
            if node.largest_free < request.units:
                continue
            judged = judge(node, request, policy, self._demand)
            if isinstance(judged, Ranked):
                found = Laid(name, tuple(sorted(card.index for card in judged.cards)), judged.score)
                best = found if found.is_better_than(best) else best
        return best

    def hold(self, laid: Laid, request: Request) -> None:
        """Count the request on these cards; where node or card is not here, nothing is counted."""
        node = self._nodes.get(laid.node_name)
        if node is None:
            return
        cards = tuple(_with(card, request) if card.index in laid.cards else card for card in node.cards)
        free = [card.free_units for card in cards if card.is_usable]
        self._nodes[node.name] = replace(
            node,
            cards=cards,
            largest_free=max(free, default=0),
            free_units=sum(free),
            used_units=sum(card.used_units for card in cards),
        )


def _with(card: Card, request: Request) -> Card:
    return replace(card, used_units=card.used_units + (card.units if request.whole else request.units))
