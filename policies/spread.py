"""The emptiest card: for pods whose speed matters more than the number of cards in use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policies.open_cards import settle_equal_cards
from policies.outlook import Outlook
from policies.policy import ScoredCards, ScoreTerm
from vrampack.cards.node import Card, Node
from vrampack.cards.node_summary import NodeSummary
from vrampack.cards.request import CardRequest

LOOKS_AHEAD = False
READS_HOSTS = False
COUNTS_LEFTOVERS = False
WEIGHTS = None


def choose_cards(_node: Node, fitting: tuple[Card, ...], request: CardRequest, _outlook: Outlook) -> ScoredCards:
    """The cards with the smallest share in use after placing; between nodes, the smallest such share.

    Shares, not free units: by free units an 80-unit card would take the first five pods of a mixed node.
    """
    emptiest = tuple(sorted(fitting, key=lambda card: (_used_share(card, request), card.index))[: request.count])
    return ScoredCards(-max(_used_share(card, request) for card in emptiest), settle_equal_cards(fitting, emptiest))


def _used_share(card: Card, request: CardRequest) -> float:
    return 1.0 if request.whole else (card.used_units + request.units) / card.units


def list_terms(_node: Node, chosen: tuple[Card, ...], request: CardRequest, _outlook: Outlook) -> tuple[ScoreTerm, ...]:
    """A single term: the fullest of the cards decides."""
    fullest = max(chosen, key=lambda card: _used_share(card, request))
    return (ScoreTerm(f"share of card {fullest.index} in use after placing", -_used_share(fullest, request)),)


def score_nodes(
    summaries: Iterable[tuple[str, NodeSummary]],
    request: CardRequest,
    _outlook: Outlook,
) -> Iterator[tuple[str, float]]:
    """The scores of `choose_cards`, from the summaries of nodes that fit."""
    for name, node in summaries:
        yield name, -1.0 if request.whole else -_used_shares(node, request)[request.count - 1]


bound_scores = score_nodes


def _used_shares(summary: NodeSummary, request: CardRequest) -> list[float]:
    """The share in use after placing, on each card with room for the request, ascending."""
    units = request.units
    return sorted((used + units) / size for size, used in summary.usable_cards if size - used >= units)
