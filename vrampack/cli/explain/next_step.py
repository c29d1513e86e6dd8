"""The next step, in one sentence: what to free, to correct, to repair or to wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from vrampack.cards import well_known
from vrampack.cards.payment import compute_payment, is_paid, list_payable_units
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import CardRequest, PodRequest
from vrampack.cli.explain.evaluation import (
    EvaluatedCard,
    EvaluatedNode,
    count_units_to_free,
    select_cards_to_free,
    select_permitted_cards,
)
from vrampack.kube.node_filters import PODS, Obstacle, Shortage, format_amount

MAX_LISTED = 5
"""Pods or models to name before `and .. more`: a sentence is not a table."""
_REASON_ORDER = {reason: at for at, reason in enumerate(UnfitReason)}


def format_units(units: int) -> str:
    return f"{units} unit" if units == 1 else f"{units} units"


def format_cards(count: int) -> str:
    return f"{count} card" if count == 1 else f"{count} cards"


def join_items(items: Sequence[object]) -> str:
    """Join as `a, b, c and 2 more`."""
    more = f" and {len(items) - MAX_LISTED} more" if len(items) > MAX_LISTED else ""
    return ", ".join(str(item) for item in items[:MAX_LISTED]) + more


def suggest_for_refused(nodes: Sequence[EvaluatedNode], pod_request: PodRequest, resource: str) -> str:
    """What to do when no node fits, judged by those that are kept from the pod as the nearest is; `nodes` come in this order."""
    if pod_request.problem:
        return f"correct the pod and create it again: {pod_request.problem}"
    shown = [node for node in nodes if not node.has_no_memory]
    if not shown:
        return _suggest_for_no_memory((), pod_request, resource)
    nearest = shown[0]
    if nearest.reason is None:
        return _suggest_for_obstacles(nearest)
    alike = [node for node in shown if _list_hindrances(node) == _list_hindrances(nearest)]
    furthest = max((node.reason for node in alike if node.reason), key=_REASON_ORDER.__getitem__)
    step = _STEPS.get(furthest, _suggest_freeing)(alike, pod_request, resource)
    return step + _mention_excluded(shown) if furthest in _STEPS else step


def _list_hindrances(node: EvaluatedNode) -> tuple[int, bool]:
    """What kinds of obstacles it has, as the nearest node decides what to do."""
    return node.exclusion_rank, bool(node.shortages)


def _suggest_for_obstacles(node: EvaluatedNode) -> str:
    """For a node whose cards fit."""
    cards = "cards" if len(node.chosen_cards) > 1 else "card"
    fit = f"the {cards} of {node.name} would fit, but"
    details = _describe_obstacles(node)
    shortages = [obstacle.subject for obstacle in node.shortages if isinstance(obstacle.subject, Shortage)]
    if node.exclusions or len(shortages) < len(node.shortages):
        return f"{fit} {details}: change the node or the pod"
    details = "; ".join(map(_describe_lack, node.shortages))
    lacking = [each for each in shortages if each.needed > each.total and each.resource != PODS]
    if lacking:
        most = " and ".join(f"{format_amount(each.resource, each.total)} {each.resource}" for each in lacking)
        return f"{fit} the node has {details}: ask for at most {most}, or add a larger node"
    freed = [
        "the place of a pod"
        if each.resource == PODS
        else f"{format_amount(each.resource, each.needed - each.free)} {each.resource}"
        for each in shortages
    ]
    return f"{fit} the node has {details}: free {' and '.join(freed)} there, or add a node"


def _describe_lack(obstacle: Obstacle) -> str:
    """What the node has."""
    lack = obstacle.subject
    is_of_pods = isinstance(lack, Shortage) and lack.resource == PODS
    return f"no place for a further pod ({obstacle.detail})" if is_of_pods else obstacle.detail


def _mention_excluded(nodes: Iterable[EvaluatedNode]) -> str:
    """The nearest node with room that the pod may not use, where those that it may use will never do."""
    other = next((node for node in nodes if node.exclusions and node.reason is None), None)
    return (
        f"; or let it use {other.name}, where it would fit: {_describe_obstacles(other)}" if other is not None else ""
    )


def _describe_obstacles(node: EvaluatedNode) -> str:
    return "; ".join(obstacle.detail for obstacle in node.obstacles)


def _suggest_for_no_memory(nodes: Sequence[EvaluatedNode], _pod_request: PodRequest, resource: str) -> str:
    broken = [node for node in nodes if node.node.problem]
    if broken:
        return f"repair {broken[0].name}: {broken[0].node.problem}"
    return f"no node shares GPU memory ({resource}): see that the agent runs on the GPU nodes and publishes their cards"


def _suggest_for_too_large(nodes: Sequence[EvaluatedNode], pod_request: PodRequest, _resource: str) -> str:
    request = pod_request.card_request
    permitted = [card.units for node in nodes for card in select_permitted_cards(node, request)]
    if not permitted:
        return "ask for less, and for cards that it may use: there are none, as its annotations and the rules stand"
    is_any = len(permitted) == sum(len(node.cards) for node in nodes)
    step = f"ask for at most {format_units(max(permitted))} on a card, the largest {'there is' if is_any else 'that it may use'}"
    count = _find_workable_count(nodes, pod_request)
    return f'{step}, or take the memory from several: label {well_known.COUNT_LABEL}: "{count}"' if count else step


def _suggest_for_too_few_cards(nodes: Sequence[EvaluatedNode], pod_request: PodRequest, _resource: str) -> str:
    request = pod_request.card_request
    units = request.least_card_units
    most = max(sum(each.card.units >= max(units, 1) for each in node.cards) for node in nodes)
    step = f"no node has {format_cards(request.count)} of at least {format_units(units)}, the best has {most}: "
    count = _find_workable_count(nodes, pod_request)
    if count:
        return f'{step}set the label {well_known.COUNT_LABEL}: "{count}", or add such a node'
    return f"{step}ask for fewer or smaller cards, or add such a node"


def _suggest_for_old_agent(nodes: Sequence[EvaluatedNode], pod_request: PodRequest, _resource: str) -> str:
    words = pod_request.card_request.words
    unserved = {node.name: sorted(node.node.unserved_words & words) for node in nodes}
    there = join_items([f"{name} ({', '.join(each)})" for name, each in sorted(unserved.items()) if each])
    return f"upgrade the agents that do not understand such requests: {there}"


def _suggest_for_model(nodes: Sequence[EvaluatedNode], pod_request: PodRequest, _resource: str) -> str:
    request = pod_request.card_request
    models = Counter(
        each.card.model or "not known"
        for node in nodes
        for each in node.cards
        if each.card.units >= request.least_card_units
    )
    there = join_items([f"{model} ({format_cards(number)})" for model, number in sorted(models.items())])
    cards = "a card" if request.count == 1 else format_cards(request.count)
    asked = (
        f"no node has {cards} of model {' or '.join(sorted(request.models or ()))} "
        f"with {format_units(request.least_card_units)}"
    )
    return f"{asked}: widen the annotation {well_known.CARD_MODEL}; large enough are {there}"


def _suggest_for_uuid(nodes: Sequence[EvaluatedNode], pod_request: PodRequest, _resource: str) -> str:
    places = {each.card.uuid: f"{node.name} {_format_card_name(each)}" for node in nodes for each in node.cards}
    there = join_items(
        [f"{uuid} is {places.get(uuid, 'on no node')}" for uuid in sorted(pod_request.card_request.uuids or ())]
    )
    one = (
        "none of them can be used"
        if pod_request.card_request.count == 1
        else "no node has enough of them that can be used"
    )
    return f"widen the annotation {well_known.CARD_UUID}: {there}; {one}"


def _suggest_for_not_permitted(_nodes: Sequence[EvaluatedNode], pod_request: PodRequest, _resource: str) -> str:
    rules = pod_request.card_request.rules
    models = sorted(rules.models or ()) if rules is not None else []
    there = join_items(models) if models else "no model at all"
    return f"the extender's rules.models lets this pod use {there}: add such a node, or change the rule"


def _suggest_for_reserved(nodes: Sequence[EvaluatedNode], _pod_request: PodRequest, _resource: str) -> str:
    reserved = [
        f"{node.name} {_format_card_name(each)}"
        for node in nodes
        for each in node.cards
        if each.card.reserve is not None
    ]
    return f"the extender's rules.reserve keeps {join_items(reserved)} for others: add a card, or change the rule"


def _suggest_for_no_references(_nodes: Sequence[EvaluatedNode], _pod_request: PodRequest, _resource: str) -> str:
    return (
        "recreate the pod: it was created before the admission policy, so its containers do not read their cards from its "
        "annotations; if the new one gets the same answer, check that the policies of manifests/admission/exact are applied"
    )


def _suggest_for_unpaid(nodes: Sequence[EvaluatedNode], pod_request: PodRequest, _resource: str) -> str:
    amounts = [
        (amount, node.name)
        for node in nodes
        for amount in list_payable_units(
            [each.card.units for each in node.cards if not _is_hopeless(each)], pod_request.card_request.count
        )
        if amount > pod_request.asked_units
    ]
    if not amounts:
        return "ask for all units of the cards, or add such a node"
    amount, name = min(amounts)
    cards = "a card" if pod_request.card_request.count == 1 else format_cards(pod_request.card_request.count)
    return f"ask for {format_units(amount)}, all of {cards} of {name}"


def _is_hopeless(card: EvaluatedCard) -> bool:
    """Whether the pod may not take it, whatever it asks for."""
    return card.reason is not None and card.reason.is_unresolvable and card.reason is not UnfitReason.UNPAID


def _suggest_freeing(nodes: Sequence[EvaluatedNode], pod_request: PodRequest, _resource: str) -> str:
    """Suggest freeing the nearest usable cards, or healing cards if that disturbs fewer pods or nothing else helps."""
    request = pod_request.card_request
    freed, healed = (_find_nearest(nodes, request, only_usable=only_usable) for only_usable in (True, False))
    steps = [_describe_freeing(*freed, whole=request.whole)] if freed else []
    if healed and (freed is None or count_units_to_free(healed[1]) < count_units_to_free(freed[1])):
        steps.append(_describe_freeing(*healed, whole=request.whole))
    return ", or ".join([*steps, "add a card" if request.count == 1 else "add a node"])


def _find_nearest(
    nodes: Iterable[EvaluatedNode], request: CardRequest, *, only_usable: bool
) -> tuple[EvaluatedNode, list[EvaluatedCard]] | None:
    plans = ((node, select_cards_to_free(node, request, only_usable=only_usable)) for node in nodes)
    found = [(node, cards) for node, cards in plans if cards]
    return min(found, key=lambda plan: count_units_to_free(plan[1]), default=None)


_STEPS: Mapping[UnfitReason, Callable[[Sequence[EvaluatedNode], PodRequest, str], str]] = {
    UnfitReason.NO_MEMORY: _suggest_for_no_memory,
    UnfitReason.UNKNOWN_INJECTION: _suggest_for_no_memory,
    UnfitReason.AGENT_TOO_OLD: _suggest_for_old_agent,
    UnfitReason.TOO_LARGE: _suggest_for_too_large,
    UnfitReason.TOO_FEW_CARDS: _suggest_for_too_few_cards,
    UnfitReason.MODEL: _suggest_for_model,
    UnfitReason.UUID: _suggest_for_uuid,
    UnfitReason.NOT_PERMITTED: _suggest_for_not_permitted,
    UnfitReason.RESERVED: _suggest_for_reserved,
    UnfitReason.NO_REFERENCES: _suggest_for_no_references,
    UnfitReason.UNPAID: _suggest_for_unpaid,
}
"""Suggestions by reason; all other reasons are about room or health."""


def _describe_freeing(node: EvaluatedNode, cards: Iterable[EvaluatedCard], *, whole: bool) -> str:
    parts = []
    for each in cards:
        where = f"{node.name} {_format_card_name(each)}"
        if each.missing_units:
            verb = f"empty {where}" if whole else f"free {format_units(each.missing_units)} on {where}"
            parts.append(f"{verb} (pods there: {join_items(each.pods)})")
        if each.card.cordoned:
            parts.append(f'take {each.card.uuid} out of the annotation "{well_known.CORDONED_CARDS}" of {node.name}')
        if not each.card.healthy:
            why = f": {each.card.reason}" if each.card.reason else ""
            parts.append(f"repair {where}, which is unhealthy{why}")
    also = f" (but there: {_describe_obstacles(node)})" if node.obstacles else ""
    return " and ".join(parts) + also


def _format_card_name(card: EvaluatedCard) -> str:
    return f"GPU{card.card.index}"


def _find_workable_count(nodes: Iterable[EvaluatedNode], pod_request: PodRequest) -> int:
    """The number of cards, the nearest to the one asked for, on which the same memory fits an empty node; 0 if there is none."""
    request = pod_request.card_request
    total = pod_request.asked_units
    permitted = [select_permitted_cards(node, request) for node in nodes]
    most = max(map(len, permitted), default=0)
    for count in sorted(range(1, most + 1), key=lambda count: abs(count - request.count)):
        is_uneven = total % count or any(each.units % count for each in pod_request.containers)
        if count == request.count or (is_uneven and not request.whole):
            continue
        payment = None if request.payment is None else compute_payment(total, count)
        least = total // count if payment is None else payment.least_units
        for cards in permitted:
            large = [card for card in cards if card.units >= least]
            if len(large) >= count and (payment is None or is_paid(large, payment, count)):
                return count
    return 0
