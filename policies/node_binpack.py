"""The fullest node, then its tightest card: keeps whole nodes empty, so that an autoscaler can remove them."""

from __future__ import annotations

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


def choose_cards(node: Node, fitting: tuple[Card, ...], request: CardRequest, _outlook: Outlook) -> ScoredCards:
    """The tightest cards; between nodes, the one with the largest share of its memory in use after placing."""
    tightest = tuple(sorted(fitting, key=lambda card: (card.free_units, card.index))[: request.count])
    added = sum(card.units if request.whole else request.units for card in tightest)
    return ScoredCards((node.used_units + added) / node.total_units, settle_equal_cards(fitting, tightest))


def list_terms(node: Node, chosen: tuple[Card, ...], request: CardRequest, _outlook: Outlook) -> tuple[ScoreTerm, ...]:
    """The share in use, and the share that the request adds."""
    added = sum(card.units if request.whole else request.units for card in chosen)
    return (
        ScoreTerm("share of the node in use", node.used_units / node.total_units),
        ScoreTerm("share of it that is asked for", added / node.total_units),
    )


def score_nodes(
    summaries: Iterable[tuple[str, NodeSummary]],
    request: CardRequest,
    _outlook: Outlook,
) -> Iterator[tuple[str, float]]:
    """The scores of `choose_cards`, from the summaries of nodes that fit."""
    for name, node in summaries:
        added = sum(find_tightest_units(node, request)) if request.whole else request.units * request.count
        yield name, (node.used_units + added) / node.total_units


bound_scores = score_nodes
