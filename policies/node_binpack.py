"""The fullest node, then its tightest card: keeps whole nodes empty, so that an autoscaler can remove them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policies.open_cards import take_tightest
from policies.outlook import Outlook
from policies.policy import FittingView, PolicyTraits, Rating, ScoreTerm, ScoreTerms
from vrampack.cards.node import Card
from vrampack.cards.request import CardRequest

TRAITS = PolicyTraits()


def rate(views: Iterable[FittingView], request: CardRequest, _outlook: Outlook) -> Iterator[Rating]:
    """The tightest cards; between nodes, the one with the largest share of its memory in use after placing."""
    for view in views:
        tightest = take_tightest(view.fitting, request)
        added = sum([request.get_taken_units(card.units) for card in tightest])
        yield Rating((view.shape.used_units + added) / view.shape.total_units, tightest)


def list_terms(view: FittingView, chosen: tuple[Card, ...], request: CardRequest, _outlook: Outlook) -> ScoreTerms:
    """The share in use, and the share that the request adds."""
    used, total = view.shape.used_units, view.shape.total_units
    added = sum(request.get_taken_units(card.units) for card in chosen)
    return ScoreTerm("share of the node in use", used / total), ScoreTerm(
        "share of it that is asked for", added / total
    )
