"""Chooses among cards as policies see them, and finds a node's own cards for those chosen."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from vrampack.cards.node import Card
from vrampack.cards.request import CardRequest
from vrampack.cards.shape import OpenCard, open_card


def take_tightest(fitting: Sequence[OpenCard], request: CardRequest) -> tuple[OpenCard, ...]:
    """The cards on which the least is free, as many as the request asks for."""
    return take_least(fitting, request, lambda card: card.units - card.used_units)


def take_least(
    fitting: Sequence[OpenCard], request: CardRequest, get_cost: Callable[[OpenCard], float]
) -> tuple[OpenCard, ...]:
    """The cards of the least cost, as many as the request asks for; of equal costs, the first."""
    if request.count == 1:
        return (min(fitting, key=get_cost),)
    return tuple(sorted(fitting, key=get_cost)[: request.count])


def pick_cards(fitting: Sequence[Card], chosen: Sequence[OpenCard]) -> tuple[Card, ...]:
    """The node's cards for `chosen`. Of equal cards, those of one NUMA node come first, as far as it has them, then by index."""
    if len(chosen) == 1:
        return (next(card for card in fitting if open_card(card) == chosen[0]),)
    best_numa = _find_best_numa(fitting, chosen)
    left = sorted(fitting, key=lambda card: (card.numa != best_numa, card.index))
    picked = []
    for wanted in chosen:
        card = next(card for card in left if open_card(card) == wanted)
        left.remove(card)
        picked.append(card)
    return tuple(picked)


def _find_best_numa(fitting: Sequence[Card], chosen: Sequence[OpenCard]) -> int | None:
    """The NUMA node that has most of the chosen cards."""
    by_numa: defaultdict[int | None, Counter[OpenCard]] = defaultdict(Counter)
    for card in fitting:
        by_numa[card.numa][open_card(card)] += 1
    wanted = Counter(chosen)
    return max(by_numa, key=lambda numa: ((by_numa[numa] & wanted).total(), -1 if numa is None else -numa))
