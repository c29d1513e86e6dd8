"""Places requests one after another on copies of nodes: what fits *together*, as the policies would place it.

Pure: nodes in, placements out; the given nodes stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from policies.evaluate import evaluate_node
from policies.outlook import NO_OUTLOOK, Outlook
from policies.policy import ScoredCards
from vrampack.cards.amounts import add_amounts
from vrampack.cards.node import Card, Node
from vrampack.cards.request import CardRequest
from vrampack.cards.tuned_policy import TunedPolicy

HeldCards: TypeAlias = tuple[Collection[int], CardRequest]
"""Cards of a node by index, and the request that holds them."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request goes: the node, and the cards by index."""

    node_name: str
    cards: tuple[int, ...]
    score: float = 0.0

    @property
    def sort_key(self) -> tuple[float, str]:
        """A sort key, best first: by score, then by node name, as everywhere."""
        return -self.score, self.node_name


class TrialCluster:
    """Copies of some nodes, and what was placed on them."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = {node.name: node for node in nodes}

    def get_node(self, name: str) -> Node:
        return self._nodes[name]

    def put_back(self, nodes: Mapping[str, Node]) -> None:
        """Forget what was placed on these nodes, by name, since `get_node` gave them."""
        self._nodes.update(nodes)

    def find_placement(
        self, name: str, request: CardRequest, policy: TunedPolicy, outlook: Outlook = NO_OUTLOOK
    ) -> Placement | None:
        """Where the request would go on this node with what it holds now, or None."""
        node = self._nodes[name]
        if node.largest_free_units < request.least_card_units:
            return None
        evaluation = evaluate_node(node, request, policy, outlook)
        if not isinstance(evaluation, ScoredCards):
            return None
        return Placement(name, tuple(sorted(card.index for card in evaluation.cards)), evaluation.score)

    def hold_placement(self, placement: Placement, request: CardRequest) -> None:
        """Count the request on these cards; unknown nodes and cards are ignored."""
        node = self._nodes.get(placement.node_name)
        if node is None:
            return
        self._nodes[node.name] = hold_on_node(node, [(placement.cards, request)])


def hold_on_node(node: Node, held: Iterable[HeldCards]) -> Node:
    """The node with these on its cards as well; unknown indices are ignored."""
    cards = list(node.cards)
    for indices, request in held:
        for at, card in enumerate(cards):
            if card.index in indices:
                cards[at] = _hold_on_card(card, request)
        if node.counts_instances:
            gpus = {card.instances.gpu for card in cards if card.instances is not None and card.index in indices}
            cards = [_take_instances(card, gpus, request) for card in cards]
    free = [card.free_units for card in cards if card.is_usable]
    return replace(
        node,
        cards=tuple(cards),
        largest_free_units=max(free, default=0),
        free_units=sum(free),
        used_units=sum(card.used_units for card in cards),
    )


def _take_instances(card: Card, gpus: Collection[str | None], request: CardRequest) -> Card:
    """The card with as many instances taken as the request takes of each of these GPUs."""
    room = card.instances
    if room is None or room.gpu not in gpus:
        return card
    return replace(card, instances=replace(room, used=room.used + room.count_taken(request.instances)))


def _hold_on_card(card: Card, request: CardRequest) -> Card:
    tenant = None if request.rules is None else request.rules.tenant
    return replace(
        card,
        used_units=card.used_units + request.get_taken_units(card.units),
        taken=add_amounts((card.taken, request.amounts)),
        free_pods=None if card.free_pods is None else max(0, card.free_pods - 1),
        tenants=card.tenants if tenant is None else card.tenants | {tenant},
    )
