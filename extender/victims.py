"""Which pods must leave a node, beside those that are going anyway, so that a request finds its cards there.

Pure, and a total order: the fewest pods; of equally many those of the lowest priorities, the highest compared first;
then those that hold the fewest units; then uids. A pod that holds units on several cards (one that asks for them, or
one on no known card) makes this a covering problem, which no fast way solves, so the order is kept exactly within
bounds: up to `MOST_SETS` sets of one card's pods and up to `MOST_SHARED` pods on several cards. Beyond the first bound
count and priorities are still the least; beyond the second no pod is needless, but there may be fewer.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from cards.fit import card_reason, missing_units
from cards.holding import Hold
from cards.node import Node
from cards.request import Request

MOST_SETS = 256
"""Sets of one card's pods that are compared: all of 10 pods, or any two of 23. About 1 ms."""
MOST_SHARED = 4
"""Pods on several cards of which every set is tried: 16 times the work of one card after the other."""

Order = tuple[int, list[int], int, list[str]]


def added_victims(
    node: Node, holds: Iterable[Hold], *, request: Request, priority: int, going: Collection[str]
) -> list[Hold] | None:
    """The holds to free beside those of the uids in `going`, most important first, or None where no set would do.

    Only bound pods of a lower `priority` are taken: a place that is only reserved may never become a pod there.
    """
    staying = [hold for hold in holds if hold.state != "leaving" and hold.pod.uid not in going]
    missing = _missing(node, staying, request)
    if len(missing) < request.count:
        return None
    lower = [
        hold for hold in staying if hold.state == "bound" and hold.pod.priority < priority and _cards_of(hold, missing)
    ]
    shared = [hold for hold in lower if len(_cards_of(hold, missing)) > 1]
    find = _smallest if len(shared) <= MOST_SHARED else _without_needless
    found = find(lower, missing, request.count)
    return None if found is None else sorted(found, key=_importance)


def order(victims: Collection[Hold]) -> Order:
    """Less is better."""
    priorities = sorted((hold.pod.priority for hold in victims), reverse=True)
    units = sum(sum(hold.units.values()) for hold in victims)
    return len(victims), priorities, units, sorted(hold.pod.uid for hold in victims)


def _missing(node: Node, staying: Iterable[Hold], request: Request) -> dict[int, int]:
    """Units that must leave each card that could serve the request if it were empty."""
    if node.problem:
        return {}
    staying = list(staying)
    return {
        card.index: missing_units(
            replace(card, used_units=sum(hold.units.get(card.index, 0) for hold in staying)), request
        )
        for card in node.cards
        if card_reason(replace(card, used_units=0), request) is None
    }


def _cards_of(hold: Hold, missing: Mapping[int, int]) -> list[int]:
    """The cards that matter on which the pod holds anything."""
    return [index for index, units in hold.units.items() if units and missing.get(index)]


def _smallest(lower: Sequence[Hold], missing: Mapping[int, int], count: int) -> list[Hold] | None:
    """The first in the order: for each set of pods on several cards, one card after the other.

    With these chosen the cards no longer depend on one another, and the order adds up: the first `count` cards are it.
    """
    shared = [hold for hold in lower if len(_cards_of(hold, missing)) > 1]
    best: list[Hold] | None = None
    for size in range(len(shared) + 1):
        for chosen in combinations(shared, size):
            if best is not None and size > len(best):
                return best
            cards = [_on_card(index, units, lower, chosen, missing) for index, units in missing.items()]
            found = sorted((card for card in cards if card is not None), key=order)[:count]
            if len(found) == count:
                victims = [*chosen, *(hold for card in found for hold in card)]
                best = victims if best is None else min(best, victims, key=order)
    return best


def _on_card(
    index: int, units: int, lower: Sequence[Hold], chosen: Collection[Hold], missing: Mapping[int, int]
) -> list[Hold] | None:
    """The first set of pods on this card alone that frees so many units, those of `chosen` counted."""
    still = units - _freed(index, chosen)
    alone = [hold for hold in lower if _cards_of(hold, missing) == [index]]
    if still <= 0:
        return []
    size = next((size for size in range(1, len(alone) + 1) if _most(index, alone, size) >= still), None)
    if size is None:
        return None
    if math.comb(len(alone), size) > MOST_SETS:
        return _least_important(index, still, alone, size)
    enough = (each for each in combinations(alone, size) if _freed(index, each) >= still)
    first: Sequence[Hold] = min(enough, key=order)
    return list(first)


def _least_important(index: int, still: int, alone: Sequence[Hold], size: int) -> list[Hold]:
    """`size` pods of the least priorities that free enough: spare every pod that the rest can do without.

    The most important are spared first, of equals those that free least: then as few of each priority stay as can.
    """
    left = sorted(alone, key=lambda hold: (-hold.pod.priority, hold.units[index], hold.pod.uid))
    for hold in list(left):
        rest = [other for other in left if other is not hold]
        if _most(index, rest, size) >= still:
            left = rest
    return left


def _without_needless(lower: Sequence[Hold], missing: Mapping[int, int], count: int) -> list[Hold] | None:
    """All of them, less every one that can be spared, the most important first: as the scheduler itself does it."""
    left = sorted(lower, key=_importance)
    if not _is_enough(left, missing, count):
        return None
    for hold in list(left):
        rest = [other for other in left if other is not hold]
        if _is_enough(rest, missing, count):
            left = rest
    return left


def _is_enough(victims: Collection[Hold], missing: Mapping[int, int], count: int) -> bool:
    return sum(_freed(index, victims) >= units for index, units in missing.items()) >= count


def _most(index: int, holds: Iterable[Hold], size: int) -> int:
    """Units of the card that `size` of these pods can free."""
    return sum(sorted((hold.units[index] for hold in holds), reverse=True)[:size])


def _freed(index: int, holds: Iterable[Hold]) -> int:
    return sum(hold.units.get(index, 0) for hold in holds)


def _importance(hold: Hold) -> tuple[int, int, str]:
    """Most important first; of equals the one that holds most is spared last."""
    return -hold.pod.priority, sum(hold.units.values()), hold.pod.uid
