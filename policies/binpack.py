"""Best fit over the cards of the whole cluster: take the card on which the least memory stays free.

A strong, simple default: small pods fill cards that are in use, and large cards stay whole for large pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policies.open_cards import take_tightest
from policies.outlook import Outlook
from policies.policy import FittingView, PolicyTraits, Rating, ScoreTerm, ScoreTerms
from vrampack.cards.node import Card
from vrampack.cards.request import CardRequest

TRAITS = PolicyTraits()


def rate(views: Iterable[FittingView], request: CardRequest, _outlook: Outlook) -> Iterator[Rating]:
    """The tightest cards; between nodes, the one that leaves the fewest units free on the cards taken."""
    for view in views:
        tightest = take_tightest(view.fitting, request)
        yield Rating(-sum([card.units - card.used_units for card in tightest]), tightest)


def list_terms(_view: FittingView, chosen: tuple[Card, ...], _request: CardRequest, _outlook: Outlook) -> ScoreTerms:
    """One term for each card."""
    return tuple(ScoreTerm(f"free on card {card.index}", -card.free_units) for card in chosen)
