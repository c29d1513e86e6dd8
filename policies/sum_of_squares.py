"""Keeps the counts of equal leftovers low, so that any later request finds a piece of its size: Sum-of-Squares.

Counts the used cards by free units, and takes the card for which the sum of the squared counts grows least. It needs no
forecast. Csirik, Johnson, Kenyon, Orlin, Shor and Weber, "On the Sum-of-Squares Algorithm for Bin Packing", JACM 2006.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from policies.open_cards import take_least
from policies.outlook import Outlook
from policies.policy import FittingView, PolicyTraits, Rating, ScoreTerm, ScoreTerms
from vrampack.cards.node import Card
from vrampack.cards.request import CardRequest
from vrampack.cards.shape import OpenCard, open_card

TRAITS = PolicyTraits(looks_ahead=True, counts_leftovers=True)


def rate(views: Iterable[FittingView], request: CardRequest, outlook: Outlook) -> Iterator[Rating]:
    """The cards for which the sum of squares grows least; the same between nodes, and then by what stays free."""
    for view in views:
        costs = {card: _measure_growth(card, request, outlook.leftovers) for card in set(view.fitting)}
        chosen = take_least(view.fitting, request, costs.__getitem__)
        yield Rating(-sum([costs[card] for card in chosen]), chosen)


def list_terms(_view: FittingView, chosen: tuple[Card, ...], request: CardRequest, outlook: Outlook) -> ScoreTerms:
    """One term for each card."""
    growths = [(card.index, _measure_growth(open_card(card), request, outlook.leftovers)) for card in chosen]
    return tuple(ScoreTerm(f"growth of the squares by card {index}", -growth) for index, growth in growths)


def _measure_growth(card: OpenCard, request: CardRequest, leftovers: Mapping[tuple[int, int], int]) -> float:
    units, free = card.units, card.free_units
    left = free - request.get_taken_units(units)
    growth = 0
    if card.used_units:
        growth -= 2 * leftovers.get((units, free), 0) - 1
    if left:
        growth += 2 * leftovers.get((units, left), 0) + 1
    return growth + left / (units + 1)
