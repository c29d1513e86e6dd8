"""The card that leaves the least fragment: fragmentation gradient descent (FGD), as its artefact computes it.

A fragment is the part of a node that typical requests cannot use; see `policies.mix.fragments`. Scores are whole numbers
up to 100, as in the artefact. Weng et al., "Beware of Fragmentation", USENIX ATC 2023.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import exp, floor

from policies.mix.fragments import ALL_HOSTS, FragmentTables
from policies.open_cards import OpenCard, list_open_cards, list_open_cards_of_node, open_card, pick_cards
from policies.outlook import Outlook
from policies.policy import ScoredCards, ScoreTerm
from vrampack.cards.node import Card, Node
from vrampack.cards.node_summary import NodeSummary
from vrampack.cards.request import CardRequest

LOOKS_AHEAD = True
READS_HOSTS = True
COUNTS_LEFTOVERS = False
WEIGHTS = None


def choose_cards(node: Node, fitting: tuple[Card, ...], request: CardRequest, outlook: Outlook) -> ScoredCards:
    """The cards that grow the fragment least; between nodes, the sigmoid of the amount by which it shrinks."""
    open_cards = list_open_cards_of_node(node, request)
    score, chosen = _rate_node(node.name, open_cards, sorted(map(open_card, fitting)), request, outlook)
    return ScoredCards(score, pick_cards(fitting, chosen))


def list_terms(node: Node, chosen: tuple[Card, ...], request: CardRequest, outlook: Outlook) -> tuple[ScoreTerm, ...]:
    """A single term: the sigmoid of the amount by which the fragment shrinks."""
    open_cards = list_open_cards_of_node(node, request)
    score, _ = _rate_node(node.name, open_cards, sorted(map(open_card, chosen)), request, outlook)
    return (ScoreTerm("sigmoid of what the node's fragment shrinks by, times 100", score),)


def score_nodes(
    summaries: Iterable[tuple[str, NodeSummary]], request: CardRequest, outlook: Outlook
) -> Iterator[tuple[str, float]]:
    """The scores of `choose_cards`, from the summaries of nodes that fit."""
    for name, summary in summaries:
        open_cards = list_open_cards(summary, request)
        fitting = [card for card in open_cards if card.has_room_for(request)]
        yield name, _rate_node(name, open_cards, fitting, request, outlook)[0]


bound_scores = score_nodes


def _rate_node(
    name: str, open_cards: Sequence[OpenCard], fitting: Sequence[OpenCard], request: CardRequest, outlook: Outlook
) -> tuple[float, list[OpenCard]]:
    """The score, and the cards taken one by one, each time the best."""
    tables, host = outlook.forecast.fragments, outlook.hosts.get(name)
    cpu_before = cpu_after = ALL_HOSTS
    if host is not None:
        cpu_before = host.cpu_milli
        cpu_after = cpu_before - (outlook.request_host.cpu_milli if outlook.request_host else 0)
    free: defaultdict[str, list[int]] = defaultdict(list)
    for card in open_cards:
        free[card.model].append(card.free_units)
    before = sum(tables.measure_node(model, units, cpu_before) for model, units in free.items())
    left, chosen = list(fitting), []
    for _ in range(request.count):
        card = _find_best_card(tables, free, left, request, cpu_after)
        _take_card(free[card.model], card, request)
        left.remove(card)
        chosen.append(card)
    after = sum(tables.measure_node(model, units, cpu_after) for model, units in free.items())
    return floor(100.0 / (1.0 + exp(after - before))), chosen


def _find_best_card(
    tables: FragmentTables,
    free: defaultdict[str, list[int]],
    fitting: Sequence[OpenCard],
    request: CardRequest,
    cpu_milli: int,
) -> OpenCard:
    """The best card. Of equal cards, a request for several takes one in use; otherwise the order is the artefact's."""
    distinct = list(dict.fromkeys(fitting))
    if len(distinct) == 1:
        return distinct[0]
    growths = []
    for position, card in enumerate(distinct):
        units = list(free[card.model])
        before = tables.measure_node(card.model, units, cpu_milli)
        _take_card(units, card, request)
        growth = tables.measure_node(card.model, units, cpu_milli) - before
        growths.append((growth, request.count > 1 and not card.used_units, position))
    return distinct[min(growths)[2]]


def _take_card(free: list[int], card: OpenCard, request: CardRequest) -> None:
    free.remove(card.free_units)
    free.append(card.free_units - card.get_taken_units(request))
