"""The fullest node, then its tightest card: keeps whole nodes empty, so that an autoscaler can remove them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policies.open_cards import take_tightest, take_tightest_units
from policies.outlook import Outlook
from policies.policy import Bound, FittingView, PolicyTraits, Rating, ScoreTerm, ScoreTerms, UnratedNode, ViewNode
from vrampack.cards.node import Card
from vrampack.cards.request import CardRequest

TRAITS = PolicyTraits()


def rate(views: Iterable[FittingView], request: CardRequest, _outlook: Outlook) -> Iterator[Rating]:
    """The tightest cards; between nodes, the one with the largest share of its memory in use after placing."""
    for view in views:
        tightest = take_tightest(view.fitting, request)
        added = sum([request.get_taken_units(card.units) for card in tightest])
        yield Rating((view.shape.used_units + added) / view.shape.total_units, tightest)


def bound_scores(
    nodes: Iterable[UnratedNode], _view_node: ViewNode, request: CardRequest, _outlook: Outlook
) -> Iterator[Bound]:
    """The scores if all cards were open to the request; where some are not, as if it took the largest."""
    for node in nodes:
        shape, tightest = node.shape, take_tightest_units(node.shape, request)
        if tightest is None:
            yield None
            continue
        is_open, added = shape.is_open_to(request), request.units * request.count
        if request.whole:
            added = sum(tightest if is_open else shape.empty[-request.count :])
        yield (shape.used_units + added) / shape.total_units, is_open


def list_terms(view: FittingView, chosen: tuple[Card, ...], request: CardRequest, _outlook: Outlook) -> ScoreTerms:
    """The share in use, and the share that the request adds."""
    used, total = view.shape.used_units, view.shape.total_units
    added = sum(request.get_taken_units(card.units) for card in chosen)
    return ScoreTerm("share of the node in use", used / total), ScoreTerm(
        "share of it that is asked for", added / total
    )
