"""The emptiest card: for pods whose speed matters more than the number of cards in use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policies.open_cards import take_least
from policies.outlook import Outlook
from policies.policy import FittingView, PolicyTraits, Rating, ScoreTerm, ScoreTerms
from vrampack.cards.node import Card
from vrampack.cards.request import CardRequest
from vrampack.cards.shape import OpenCard

TRAITS = PolicyTraits()


def rate(views: Iterable[FittingView], request: CardRequest, _outlook: Outlook) -> Iterator[Rating]:
    """The cards with the smallest share in use after placing; between nodes, the smallest such share.

    Shares, not free units: by free units an 80-unit card would take the first five pods of a mixed node.
    """
    for view in views:
        emptiest = take_least(view.fitting, request, lambda card: _get_used_share(card, request))
        yield Rating(-_get_used_share(emptiest[-1], request) if emptiest else 0.0, emptiest)


def list_terms(_view: FittingView, chosen: tuple[Card, ...], request: CardRequest, _outlook: Outlook) -> ScoreTerms:
    """A single term: the fullest of the cards decides."""
    fullest = max(chosen, key=lambda card: _get_used_share(card, request))
    return (ScoreTerm(f"share of card {fullest.index} in use after placing", -_get_used_share(fullest, request)),)


def _get_used_share(card: Card | OpenCard, request: CardRequest) -> float:
    return 1.0 if request.whole else (card.used_units + request.units) / card.units
