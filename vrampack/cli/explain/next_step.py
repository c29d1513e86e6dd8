"""The next step, in one sentence: what to free, to correct, to repair or to wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from vrampack.cards import keys
from vrampack.cards.fit import UnfitReason
from vrampack.cards.request import PodRequest
from vrampack.cli.explain.judged import JudgedCard, JudgedNode, cards_to_free, units_to_free

SHOWN = 5
"""Pods or models named before `and .. more`: a sentence is no table."""
_ORDER = {reason: at for at, reason in enumerate(UnfitReason)}


def units_text(units: int) -> str:
    return f"{units} unit" if units == 1 else f"{units} units"


def cards_text(count: int) -> str:
    return f"{count} card" if count == 1 else f"{count} cards"


def listed(items: Sequence[object]) -> str:
    """`a, b, c`, and how many more."""
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return ", ".join(str(item) for item in items[:SHOWN]) + more


def step_for_refused(nodes: Sequence[JudgedNode], ask: PodRequest, resource: str) -> str:
    """What to do when no node fits: by the node that came furthest through the filter's checks."""
    if ask.card_request.problem:
        return f"correct the pod and create it anew: {ask.card_request.problem}"
    open_nodes = [node for node in nodes if not node.obstacles and node.reason is not UnfitReason.NO_MEMORY]
    pool = open_nodes or list(nodes)
    furthest = max((node.reason for node in pool if node.reason), key=_ORDER.__getitem__, default=UnfitReason.NO_MEMORY)
    return _STEPS.get(furthest, _free)(
        [node for node in pool if node.node.total_units or node.node.problem], ask, resource
    )


def _no_memory(nodes: Sequence[JudgedNode], _ask: PodRequest, resource: str) -> str:
    broken = [node for node in nodes if node.node.problem]
    if broken:
        return f"repair {broken[0].name}: {broken[0].node.problem}"
    return f"no node shares GPU memory ({resource}): see that the agent runs on the GPU nodes and publishes their cards"


def _too_large(nodes: Sequence[JudgedNode], ask: PodRequest, _resource: str) -> str:
    largest = max(node_card.card.units for node in nodes for node_card in node.cards)
    step = f"ask at most {units_text(largest)} on a card, the largest there is"
    count = _workable_count(nodes, ask)
    return f'{step}, or take the memory from several: label {keys.COUNT_LABEL}: "{count}"' if count else step


def _too_few(nodes: Sequence[JudgedNode], ask: PodRequest, _resource: str) -> str:
    request = ask.card_request
    most = max(sum(each.card.units >= max(request.units, 1) for each in node.cards) for node in nodes)
    step = f"no node has {cards_text(request.count)} of at least {units_text(request.units)}, the best has {most}: "
    count = _workable_count(nodes, ask)
    if count:
        return f'{step}set the label {keys.COUNT_LABEL}: "{count}", or add such a node'
    return f"{step}ask for fewer or smaller cards, or add such a node"


def _model(nodes: Sequence[JudgedNode], ask: PodRequest, _resource: str) -> str:
    request = ask.card_request
    models = Counter(
        each.card.model or "not known" for node in nodes for each in node.cards if each.card.units >= request.units
    )
    there = listed([f"{model} ({cards_text(number)})" for model, number in sorted(models.items())])
    cards = "a card" if request.count == 1 else cards_text(request.count)
    asked = f"no node has {cards} of model {' or '.join(request.models)} with {units_text(request.units)}"
    return f"{asked}: widen the annotation {keys.CARD_MODEL}; large enough are {there}"


def _uuid(nodes: Sequence[JudgedNode], ask: PodRequest, _resource: str) -> str:
    places = {each.card.uuid: f"{node.name} {_name(each)}" for node in nodes for each in node.cards}
    there = listed([f"{uuid} is {places.get(uuid, 'on no node')}" for uuid in ask.card_request.uuids])
    one = "none of them can be used" if ask.card_request.count == 1 else "no node has enough of them that can be used"
    return f"widen the annotation {keys.CARD_UUID}: {there}; {one}"


def _free(nodes: Sequence[JudgedNode], ask: PodRequest, _resource: str) -> str:
    """Free the nearest usable cards; heal sick or cordoned ones where that asks less of others, or nothing else helps."""
    request = ask.card_request
    freed, healed = (_nearest(nodes, request.count, only_usable=only_usable) for only_usable in (True, False))
    steps = [_plan(*freed, whole=request.whole)] if freed else []
    if healed and (freed is None or units_to_free(healed[1]) < units_to_free(freed[1])):
        steps.append(_plan(*healed, whole=request.whole))
    return ", or ".join([*steps, "add a card" if request.count == 1 else "add a node"])


def _nearest(
    nodes: Iterable[JudgedNode], count: int, *, only_usable: bool
) -> tuple[JudgedNode, list[JudgedCard]] | None:
    plans = ((node, cards_to_free(node, count, only_usable=only_usable)) for node in nodes)
    found = [(node, cards) for node, cards in plans if cards]
    return min(found, key=lambda plan: units_to_free(plan[1]), default=None)


def _kept(_nodes: Sequence[JudgedNode], _ask: PodRequest, _resource: str) -> str:
    return "the policy keeps the room for larger pods: wait, or change the policy"


_STEPS: Mapping[UnfitReason, Callable[[Sequence[JudgedNode], PodRequest, str], str]] = {
    UnfitReason.NO_MEMORY: _no_memory,
    UnfitReason.TOO_LARGE: _too_large,
    UnfitReason.TOO_FEW_CARDS: _too_few,
    UnfitReason.MODEL: _model,
    UnfitReason.UUID: _uuid,
    UnfitReason.KEPT_FREE: _kept,
}
"""The rest is a matter of room or health."""


def _plan(node: JudgedNode, cards: Iterable[JudgedCard], *, whole: bool) -> str:
    parts = []
    for each in cards:
        where = f"{node.name} {_name(each)}"
        if each.missing:
            verb = f"empty {where}" if whole else f"free {units_text(each.missing)} on {where}"
            parts.append(f"{verb} (pods there: {listed(each.pods)})")
        if each.card.cordoned:
            parts.append(f'take {each.card.uuid} out of the annotation "{keys.CORDONED_CARDS}" of {node.name}')
        if not each.card.healthy:
            parts.append(f"repair {where}, which is unhealthy")
    also = f" (but there: {'; '.join(node.obstacles)})" if node.obstacles else ""
    return " and ".join(parts) + also


def _name(card: JudgedCard) -> str:
    return f"GPU{card.card.index}"


def _workable_count(nodes: Iterable[JudgedNode], ask: PodRequest) -> int:
    """The smallest number of cards on which the same memory would fit some node if it were empty; 0 when there is none."""
    request = ask.card_request
    total = request.units * request.count
    most = max((len(node.cards) for node in nodes), default=0)
    for count in range(1, most + 1):
        if count == request.count or total % count or any(each.units % count for each in ask.containers):
            continue
        if any(sum(each.card.units >= total // count for each in node.cards) >= count for node in nodes):
            return count
    return 0
