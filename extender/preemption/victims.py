"""Finds the pods that must leave a node, besides those that are leaving anyway, so that a request finds its cards there.

Pure, with a total order: the fewest pods; of equally many those of the lowest priorities, the highest compared first;
then those that hold the fewest units; then uids. A pod that holds units on several cards (it asks for several, or its card
is unknown) makes this a covering problem, which no fast method solves. So the result is the first in that order only
within bounds: `MAX_SETS` sets of one card's pods and `MAX_SHARED_PODS` pods on several cards. Beyond the first bound
count and priorities are still the least; beyond the second every victim is needed, but a smaller set may exist.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations

from vrampack.cards.fit import Unfit, count_missing_units, find_fitting_cards, list_unhindered_cards
from vrampack.cards.holding import Hold, refill_node
from vrampack.cards.node import Node
from vrampack.cards.payment import drop_unpaid_cards
from vrampack.cards.request import CardRequest
from vrampack.cards.rules import NO_RULES, PlacementRules

MAX_SETS = 128
"""Sets of one card's pods to compare: of 9 pods, or any two of 16. At 3 us each they take 0.4 ms."""
MAX_SHARED_PODS = 3
"""Pods on several cards of which to try every set: at most 8 times the work of one card after the other."""

EVICTABLE = ("bound", "held")
"""The scheduler has such a pod on its node. A place that is only reserved may never become a pod there."""

VictimOrder = tuple[int, list[int], int, list[str]]


def find_added_victims(  # noqa: PLR0913 - the node, the pod, and who may go
    node: Node,
    holds: Iterable[Hold],
    *,
    request: CardRequest,
    priority: int,
    leaving_uids: Collection[str],
    protected_uids: Collection[str] = (),
    rules: PlacementRules = NO_RULES,
) -> list[Hold] | None:
    """The holds to free besides those of `leaving_uids`, most important first; None when freeing all would not be enough.

    Only `EVICTABLE` pods of a lower `priority` are taken, and none of `protected_uids`.
    """
    staying = [hold for hold in holds if hold.state != "terminating" and hold.pod.uid not in leaving_uids]
    lower = [
        hold
        for hold in staying
        if hold.state in EVICTABLE and hold.pod.priority < priority and hold.pod.uid not in protected_uids
    ]
    free_units_decide = request.rules is None and not request.amounts and not node.counts_instances
    if not free_units_decide or _is_choice_limited(node, request):
        return _find_victims_by_fit(node, staying, lower, request, rules)
    missing = _count_missing_units(node, staying, request)
    if len(missing) < request.count:
        return None
    lower = [hold for hold in lower if _list_missing_cards(hold, missing)]
    shared = [hold for hold in lower if len(_list_missing_cards(hold, missing)) > 1]
    find_victims = _find_smallest_set if len(shared) <= MAX_SHARED_PODS else _drop_needless
    victims = find_victims(lower, missing, request.count)
    return None if victims is None else sorted(victims, key=_get_importance)


def _is_choice_limited(node: Node, request: CardRequest) -> bool:
    """Whether some of the cards, if all were empty, would be too expensive beside others of them."""
    if request.payment is None or request.count == 1:
        return False
    cards = list_unhindered_cards(node, [replace(card, used_units=0) for card in node.cards], request)
    return len(drop_unpaid_cards(cards, request.payment, request.count)) < len(cards)


def _find_victims_by_fit(
    node: Node, staying: Sequence[Hold], lower: Sequence[Hold], request: CardRequest, rules: PlacementRules
) -> list[Hold] | None:
    """Victims of which none can be spared. Where free units do not decide alone, it checks the fit."""

    def is_fitting(holds: Iterable[Hold]) -> bool:
        return not isinstance(find_fitting_cards(refill_node(node, holds, rules=rules), request), Unfit)

    kept = [hold for hold in staying if hold not in lower]
    if not is_fitting(kept):
        return None
    victims = []
    for hold in sorted(lower, key=_get_importance):
        if is_fitting([*kept, hold]):
            kept.append(hold)
        else:
            victims.append(hold)
    return victims


def get_victim_order(victims: Collection[Hold]) -> VictimOrder:
    """A sort key for sets of victims; the smallest is the best."""
    priorities = sorted((hold.pod.priority for hold in victims), reverse=True)
    units = sum(sum(hold.units.values()) for hold in victims)
    return len(victims), priorities, units, sorted(hold.pod.uid for hold in victims)


def _count_missing_units(node: Node, staying: Iterable[Hold], request: CardRequest) -> dict[int, int]:
    """Units to free on each card, by index; only cards that could serve the request if they were empty."""
    if node.problem:
        return {}
    staying = list(staying)
    emptied = [replace(card, used_units=0) for card in node.cards]
    return {
        card.index: count_missing_units(
            replace(card, used_units=sum(hold.units.get(card.index, 0) for hold in staying)), request
        )
        for card in list_unhindered_cards(node, emptied, request)
    }


def _list_missing_cards(hold: Hold, missing: Mapping[int, int]) -> list[int]:
    """The cards on which units are missing and the pod holds some."""
    return [index for index, units in hold.units.items() if units and missing.get(index)]


def _find_smallest_set(lower: Sequence[Hold], missing: Mapping[int, int], count: int) -> list[Hold] | None:
    """The first set in the order: for each choice of pods on several cards, find the best set of each card.

    Once those pods are chosen the cards no longer depend on one another, so the best `count` cards give the answer.
    """
    on_cards = [(hold, _list_missing_cards(hold, missing)) for hold in lower]
    shared = [hold for hold, cards in on_cards if len(cards) > 1]
    alone = {index: [hold for hold, cards in on_cards if cards == [index]] for index in missing}
    best: list[Hold] | None = None
    for size in range(len(shared) + 1):
        for chosen in combinations(shared, size):
            still = {index: units - _count_freed(index, chosen) for index, units in missing.items()}
            sizes = {index: _count_fewest(index, units, alone[index]) for index, units in still.items()}
            fewest = sorted(each for each in sizes.values() if each is not None)[:count]
            if len(fewest) < count or (best is not None and size + sum(fewest) > len(best)):
                continue
            cards = [
                _find_first_set(index, still[index], alone[index], each)
                for index, each in sizes.items()
                if each is not None and each <= fewest[-1]
            ]
            cards.sort(key=get_victim_order)
            victims = [*chosen, *chain.from_iterable(cards[:count])]
            best = victims if best is None else min(best, victims, key=get_victim_order)
    return best


def _count_fewest(index: int, still: int, alone: Sequence[Hold]) -> int | None:
    """The least number of the card's own pods that must go; None when all of them free too little."""
    sizes = range(len(alone) + 1)
    return next((size for size in sizes if _count_most_freeable(index, alone, size) >= still), None)


def _find_first_set(index: int, still: int, alone: Sequence[Hold], size: int) -> list[Hold]:
    """The first set of `size` of the card's own pods that frees enough of it."""
    if math.comb(len(alone), size) > MAX_SETS:
        return _find_least_important(index, still, alone, size)
    enough = (each for each in combinations(alone, size) if _count_freed(index, each) >= still)
    first: Sequence[Hold] = min(enough, key=get_victim_order)
    return list(first)


def _find_least_important(index: int, still: int, alone: Sequence[Hold], size: int) -> list[Hold]:
    """`size` pods of the lowest priorities that free enough: spare every pod that the others can do without.

    It spares the most important pods first, and of equals those that free least.
    """
    left = sorted(alone, key=lambda hold: (-hold.pod.priority, hold.units[index], hold.pod.uid))
    for hold in list(left):
        rest = [other for other in left if other is not hold]
        if _count_most_freeable(index, rest, size) >= still:
            left = rest
    return left


def _drop_needless(lower: Sequence[Hold], missing: Mapping[int, int], count: int) -> list[Hold] | None:
    """All of them but those that can be spared, the most important spared first, as the scheduler itself does it."""
    freed = {index: _count_freed(index, lower) for index in missing}
    if not _is_enough(freed, missing, count):
        return None
    victims = []
    for hold in sorted(lower, key=_get_importance):
        rest = {index: units - hold.units.get(index, 0) for index, units in freed.items()}
        if _is_enough(rest, missing, count):
            freed = rest
        else:
            victims.append(hold)
    return victims


def _is_enough(freed: Mapping[int, int], missing: Mapping[int, int], count: int) -> bool:
    return sum(freed[index] >= units for index, units in missing.items()) >= count


def _count_most_freeable(index: int, holds: Iterable[Hold], size: int) -> int:
    """Units of the card that `size` of these pods can free."""
    return sum(sorted((hold.units[index] for hold in holds), reverse=True)[:size])


def _count_freed(index: int, holds: Iterable[Hold]) -> int:
    return sum(hold.units.get(index, 0) for hold in holds)


def _get_importance(hold: Hold) -> tuple[int, int, str]:
    """A sort key, most important first; of equal priorities the pod that holds most comes last."""
    return -hold.pod.priority, sum(hold.units.values()), hold.pod.uid
