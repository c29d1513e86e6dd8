"""The policies with which the FGD study compares: only for the simulator, no cluster can choose them.

Formulas and whole-number scores are those of the study's artefact, with its constants: 128 CPUs and 8 cards on the largest
node. Within a node they take the tightest cards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import floor

from policies.open_cards import take_tightest
from policies.outlook import Outlook
from policies.policy import FittingView, Policy, PolicyTraits, Rating, ScoreTerm, ScoreTerms
from vrampack.cards.host_room import HostResources
from vrampack.cards.node import Card
from vrampack.cards.request import CardRequest
from vrampack.cards.shape import OpenCard, open_card

MAX_CPU_MILLI = 128_000
MAX_CARDS = 8
NO_ROOM = HostResources(0, 0)

RateNode = Callable[[Sequence[OpenCard], Sequence[OpenCard], CardRequest, int, int], float]
"""Rates a node by all its cards, the chosen ones, the request, and the thousandths of a CPU left on the host and taken."""


class StudyPolicy:
    """One such policy, given its formula."""

    TRAITS = PolicyTraits(looks_ahead=True, reads_hosts=True)

    def __init__(self, rate_node: RateNode) -> None:
        self._rate_node = rate_node

    def rate(self, views: Iterable[FittingView], request: CardRequest, outlook: Outlook) -> Iterator[Rating]:
        """The tightest cards."""
        for view in views:
            chosen = take_tightest(view.fitting, request)
            yield Rating(self._rate(view, chosen, request, outlook), chosen)

    def list_terms(
        self, view: FittingView, chosen: tuple[Card, ...], request: CardRequest, outlook: Outlook
    ) -> ScoreTerms:
        """A single term for the whole formula."""
        return (ScoreTerm("rating", self._rate(view, [*map(open_card, chosen)], request, outlook)),)

    def _rate(self, view: FittingView, chosen: Sequence[OpenCard], request: CardRequest, outlook: Outlook) -> float:
        cpu_milli = (view.host or NO_ROOM).cpu_milli
        return self._rate_node(view.cards, chosen, request, cpu_milli, (outlook.request_host or NO_ROOM).cpu_milli)


def _rate_best_fit(
    cards: Sequence[OpenCard], _chosen: Sequence[OpenCard], request: CardRequest, cpu_milli: int, taken_milli: int
) -> float:
    """Best fit: the node with the least CPU and card memory left after placing."""
    cpu_left = (cpu_milli - taken_milli) / MAX_CPU_MILLI
    cards_left = _count_free_cards(cards) - request.count * request.units / _get_card_units(cards)
    return floor(100 * (1 - 0.5 * cpu_left - 0.5 * cards_left / MAX_CARDS))


def _rate_dot_product(
    cards: Sequence[OpenCard], _chosen: Sequence[OpenCard], request: CardRequest, cpu_milli: int, taken_milli: int
) -> float:
    """Dot product: the node whose remaining resources are least aligned with the request."""
    by_cpu = cpu_milli / MAX_CPU_MILLI * taken_milli / MAX_CPU_MILLI
    asked = request.count * request.units / _get_card_units(cards)
    return floor(100 * (1 - (by_cpu + _count_free_cards(cards) / MAX_CARDS * asked / MAX_CARDS) / 2))


def _rate_packing(
    cards: Sequence[OpenCard], chosen: Sequence[OpenCard], _request: CardRequest, _cpu_milli: int, _taken_milli: int
) -> float:
    """Used cards first, then free cards of used nodes, then free nodes with few cards."""
    if not chosen:
        return 0
    if not any(card.used_units for card in cards):
        return max(33 - len(cards), len(cards))
    opened = sum(not card.used_units for card in chosen)
    if opened:
        return max(50 - opened, 33)
    return max(100 - sum(100 * card.free_units // card.units for card in chosen) // 10, 50)


def _count_free_cards(cards: Sequence[OpenCard]) -> float:
    return sum(card.free_units for card in cards) / _get_card_units(cards)


def _get_card_units(cards: Sequence[OpenCard]) -> int:
    return cards[0].units


STUDY_POLICIES: dict[str, Policy] = {
    "best-fit": StudyPolicy(_rate_best_fit),
    "dot-product": StudyPolicy(_rate_dot_product),
    "gpu-packing": StudyPolicy(_rate_packing),
}
