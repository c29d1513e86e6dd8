"""Keeps the counts of equal leftovers low, so that any later request finds a piece of its size: Sum-of-Squares.

Counts the used cards by free units, and takes the card for which the sum of the squared counts grows least. It needs no
forecast. Csirik, Johnson, Kenyon, Orlin, Shor and Weber, "On the Sum-of-Squares Algorithm for Bin Packing", JACM 2006.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from policies.open_cards import OpenCard, list_open_cards, open_card, pick_cards
from policies.outlook import Outlook
from policies.policy import ScoredCards, ScoreTerm
from vrampack.cards.node import Card, Node
from vrampack.cards.node_summary import NodeSummary
from vrampack.cards.request import CardRequest

LOOKS_AHEAD = True
READS_HOSTS = False
COUNTS_LEFTOVERS = True
WEIGHTS = None


def choose_cards(_node: Node, fitting: tuple[Card, ...], request: CardRequest, outlook: Outlook) -> ScoredCards:
    """The cards for which the sum of squares grows least; the same between nodes, and then by what stays free."""
    score, chosen = _rate_cards(sorted(map(open_card, fitting)), request, outlook.leftovers)
    return ScoredCards(score, pick_cards(fitting, chosen))


def list_terms(_node: Node, chosen: tuple[Card, ...], request: CardRequest, outlook: Outlook) -> tuple[ScoreTerm, ...]:
    """One term for each card."""
    growths = [(card.index, _measure_growth(open_card(card), request, outlook.leftovers)) for card in chosen]
    return tuple(ScoreTerm(f"growth of the squares by card {index}", -growth) for index, growth in growths)


def score_nodes(
    summaries: Iterable[tuple[str, NodeSummary]], request: CardRequest, outlook: Outlook
) -> Iterator[tuple[str, float]]:
    """The scores of `choose_cards`, from the summaries of nodes that fit."""
    for name, summary in summaries:
        fitting = [card for card in list_open_cards(summary, request) if card.has_room_for(request)]
        yield name, _rate_cards(fitting, request, outlook.leftovers)[0]


bound_scores = score_nodes


def _rate_cards(
    fitting: Sequence[OpenCard], request: CardRequest, leftovers: Mapping[tuple[int, int], int]
) -> tuple[float, list[OpenCard]]:
    """The score, and the cards to take."""
    costs = {card: _measure_growth(card, request, leftovers) for card in set(fitting)}
    chosen = sorted(fitting, key=lambda card: (costs[card], card))[: request.count]
    return -sum([costs[card] for card in chosen]), chosen


def _measure_growth(card: OpenCard, request: CardRequest, leftovers: Mapping[tuple[int, int], int]) -> float:
    left = card.free_units - card.get_taken_units(request)
    growth = 0
    if card.used_units:
        growth -= 2 * leftovers.get((card.units, card.free_units), 0) - 1
    if left:
        growth += 2 * leftovers.get((card.units, left), 0) + 1
    return growth + left / (card.units + 1)
