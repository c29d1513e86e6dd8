"""How many pods with the same request find cards on a node together: an upper bound, so it proves only that more do not."""

from __future__ import annotations

from vrampack.cards.fit import list_unhindered_cards
from vrampack.cards.node import Card, Node
from vrampack.cards.request import CardRequest


def count_places(node: Node, request: CardRequest, wanted: int) -> int:
    """How many, up to `wanted`; never fewer than could be placed.

    A pod takes `count` different cards, so `n` pods need `n * count` places on cards that have at most `n` each. What is
    limited besides units and pods of a card is not counted.
    """
    cards = list_unhindered_cards(node, node.placeable_cards, request)
    room = [_count_on_card(card, request, wanted) for card in cards]
    places = 0
    while places < wanted and sum(min(each, places + 1) for each in room) >= (places + 1) * request.count:
        places += 1
    return places


def _count_on_card(card: Card, request: CardRequest, wanted: int) -> int:
    units = request.get_taken_units(card.units)
    by_units = card.free_units // units if units else wanted
    if card.free_pods is None or request.rules is None:
        return by_units
    return min(by_units, card.free_pods)
