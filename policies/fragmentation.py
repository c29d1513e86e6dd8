"""The card that leaves the least fragment: fragmentation gradient descent (FGD), as its artefact computes it.

A fragment is the part of a node that typical requests cannot use; see `policies.mix.fragments`. Scores are whole numbers
up to 100, as in the artefact. Weng et al., "Beware of Fragmentation", USENIX ATC 2023.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import exp, floor

from policies.mix.fragments import ALL_HOSTS, FragmentTables
from policies.outlook import Outlook
from policies.policy import FittingView, PolicyTraits, Rating, ScoreTerm, ScoreTerms
from vrampack.cards.node import Card
from vrampack.cards.request import CardRequest
from vrampack.cards.shape import OpenCard, open_card

TRAITS = PolicyTraits(looks_ahead=True, reads_hosts=True)


def rate(views: Iterable[FittingView], request: CardRequest, outlook: Outlook) -> Iterator[Rating]:
    """The cards that grow the fragment least; between nodes, the sigmoid of the amount by which it shrinks."""
    return (_rate_node(view, view.fitting, request, outlook) for view in views)


def list_terms(view: FittingView, chosen: tuple[Card, ...], request: CardRequest, outlook: Outlook) -> ScoreTerms:
    """A single term: the sigmoid of the amount by which the fragment shrinks."""
    rating = _rate_node(view, sorted(map(open_card, chosen)), request, outlook)
    return (ScoreTerm("sigmoid of what the node's fragment shrinks by, times 100", rating.score),)


def _rate_node(view: FittingView, fitting: Sequence[OpenCard], request: CardRequest, outlook: Outlook) -> Rating:
    """The score, and the cards taken one by one, each time the best."""
    tables = outlook.forecast.fragments
    cpu_before = cpu_after = ALL_HOSTS
    if view.host is not None:
        cpu_before = view.host.cpu_milli
        cpu_after = cpu_before - (outlook.request_host.cpu_milli if outlook.request_host else 0)
    free: defaultdict[str, list[int]] = defaultdict(list)
    for card in view.cards:
        free[card.model].append(card.free_units)
    before = sum(tables.measure_node(model, units, cpu_before) for model, units in free.items())
    left, chosen = list(fitting), []
    for _ in range(request.count):
        card = _find_best_card(tables, free, left, request, cpu_after)
        _take_card(free[card.model], card, request)
        left.remove(card)
        chosen.append(card)
    after = sum(tables.measure_node(model, units, cpu_after) for model, units in free.items())
    return Rating(floor(100.0 / (1.0 + exp(after - before))), tuple(chosen))


def _find_best_card(
    tables: FragmentTables,
    free: defaultdict[str, list[int]],
    fitting: Sequence[OpenCard],
    request: CardRequest,
    cpu_milli: int,
) -> OpenCard:
    """The best card. Of equal cards, a request for several takes one in use; otherwise the order is the artefact's."""
    distinct = dict.fromkeys(fitting)

    def measure_growth(card: OpenCard) -> tuple[float, bool]:
        units = list(free[card.model])
        before = tables.measure_node(card.model, units, cpu_milli)
        _take_card(units, card, request)
        return tables.measure_node(card.model, units, cpu_milli) - before, request.count > 1 and not card.used_units

    return min(distinct, key=measure_growth) if len(distinct) > 1 else fitting[0]


def _take_card(free: list[int], card: OpenCard, request: CardRequest) -> None:
    free.remove(card.free_units)
    free.append(card.free_units - request.get_taken_units(card.units))
