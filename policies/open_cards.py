"""The usable cards of a node for policies that look ahead: the same from a node and from its summary."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from vrampack.cards.node import Card, Node
from vrampack.cards.node_summary import NodeSummary
from vrampack.cards.request import CardRequest
from vrampack.cards.ruled_view import list_permitted_cards


class OpenCard(NamedTuple):
    """One usable card of an allowed model. Policies cannot tell equal cards apart."""

    model: str
    units: int
    used_units: int

    @property
    def free_units(self) -> int:
        return max(0, self.units - self.used_units)

    def get_taken_units(self, request: CardRequest) -> int:
        """Units that the request would hold on this card; it must fit."""
        return self.units if request.whole else request.units

    def has_room_for(self, request: CardRequest) -> bool:
        if request.whole:
            return not self.used_units and self.units >= request.units
        return self.units - self.used_units >= request.units


def open_card(card: Card) -> OpenCard:
    return OpenCard(card.model, card.units, card.used_units)


def list_open_cards_of_node(node: Node, request: CardRequest) -> list[OpenCard]:
    """The cards in a stable order, so that floating-point sums over them are reproducible."""
    return sorted(open_card(card) for card in list_permitted_cards(node, request) if card.is_usable)


def list_open_cards(summary: NodeSummary, request: CardRequest) -> list[OpenCard]:
    """The same from the node's summary for the allowed models."""
    if summary.by_model is None:
        (model,) = summary.models
        return sorted([OpenCard(model, units, used) for units, used in summary.usable_cards])
    return sorted(
        OpenCard(model, units, used)
        for model, part in summary.by_model.items()
        if request.models is None or model in request.models
        for units, used in part.usable_cards
    )


def settle_equal_cards(fitting: Sequence[Card], chosen: tuple[Card, ...]) -> tuple[Card, ...]:
    """The chosen cards, or equal ones on a single NUMA node."""
    return chosen if len(chosen) == 1 else pick_cards(fitting, [open_card(card) for card in chosen])


def pick_cards(fitting: Sequence[Card], chosen: Sequence[OpenCard]) -> tuple[Card, ...]:
    """The node's cards for `chosen`. Of equal cards, those of one NUMA node come first, as far as it has them, then by index."""
    if len(chosen) == 1:
        return (next(card for card in fitting if open_card(card) == chosen[0]),)
    best_numa = _find_best_numa(fitting, chosen)
    left = sorted(fitting, key=lambda card: (card.numa != best_numa, card.index))
    picked = []
    for wanted in chosen:
        card = next(card for card in left if open_card(card) == wanted)
        left.remove(card)
        picked.append(card)
    return tuple(picked)


def _find_best_numa(fitting: Sequence[Card], chosen: Sequence[OpenCard]) -> int | None:
    """The NUMA node that has most of the chosen cards."""
    by_numa: defaultdict[int | None, Counter[OpenCard]] = defaultdict(Counter)
    for card in fitting:
        by_numa[card.numa][open_card(card)] += 1
    wanted = Counter(chosen)
    return max(by_numa, key=lambda numa: ((by_numa[numa] & wanted).total(), -1 if numa is None else -numa))
