"""Best fit over the cards of the whole cluster: take the card on which the least memory stays free.

A strong, simple default: small pods fill cards that are in use, and large cards stay whole for large pods.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from policies.open_cards import settle_equal_cards
from policies.outlook import Outlook
from policies.policy import ScoredCards, ScoreTerm
from vrampack.cards.node import Card, Node
from vrampack.cards.node_summary import NodeSummary, find_tightest_units
from vrampack.cards.request import CardRequest

LOOKS_AHEAD = False
READS_HOSTS = False
COUNTS_LEFTOVERS = False
WEIGHTS = None


def choose_cards(_node: Node, fitting: tuple[Card, ...], request: CardRequest, _outlook: Outlook) -> ScoredCards:
    """The tightest cards; between nodes, the one that leaves the fewest units free on the cards taken."""
    tightest = tuple(sorted(fitting, key=lambda card: (card.free_units, card.index))[: request.count])
    return ScoredCards(-sum(card.free_units for card in tightest), settle_equal_cards(fitting, tightest))


def list_terms(
    _node: Node, chosen: tuple[Card, ...], _request: CardRequest, _outlook: Outlook
) -> tuple[ScoreTerm, ...]:
    """One term for each card."""
    return tuple(ScoreTerm(f"free on card {card.index}", -card.free_units) for card in chosen)


def score_nodes(
    summaries: Iterable[tuple[str, NodeSummary]],
    request: CardRequest,
    _outlook: Outlook,
) -> Iterator[tuple[str, float]]:
    """The scores of `choose_cards`, from the summaries of nodes that fit."""
    if request.count > 1:
        yield from ((name, -sum(find_tightest_units(node, request))) for name, node in summaries)
        return
    units, whole = request.units, request.whole
    for name, node in summaries:  # the scheduler waits for this loop at every new request size
        free = node.empty_card_units if whole else node.free_units
        yield name, -free[bisect_left(free, units)]


bound_scores = score_nodes
