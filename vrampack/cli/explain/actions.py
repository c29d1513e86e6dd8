"""The next step for programs: what to do so that the pod fits the nearest node, all of it together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import PodRequest
from vrampack.cli.explain.evaluation import EvaluatedCard, EvaluatedNode, select_cards_to_free, select_permitted_cards
from vrampack.cli.explain.schema import ActionView
from vrampack.kube.node_filters import UNSCHEDULABLE_REASON, Label, Obstacle, Shortage
from vrampack.kube.taints import Taint

NEEDS_OTHER_NODES = frozenset((UnfitReason.TOO_FEW_CARDS, UnfitReason.MODEL, UnfitReason.UUID, UnfitReason.NO_MEMORY))


def list_actions(nodes: Sequence[EvaluatedNode], pod_request: PodRequest) -> tuple[ActionView, ...]:
    """For a pod that may be tried; `nodes`, the nearest first, as they are evaluated."""
    if pod_request.problem:
        return (ActionView("change-request"),)
    nearest = next((node for node in nodes if not node.has_no_memory), None)
    if nearest is None:
        return (_describe_new_node(pod_request),)
    if nearest.fits:
        return (ActionView("wait", node=nearest.name),)
    cards = _find_cards(nearest, pod_request)
    if nearest.reason is not None and not cards:
        return (_change_hopeless(nearest, nodes, pod_request),)
    return (*(_remove_obstacle(nearest, each) for each in nearest.obstacles), *_free_cards(nearest, cards))


def _find_cards(node: EvaluatedNode, pod_request: PodRequest) -> list[EvaluatedCard]:
    request = pod_request.card_request
    plans = (select_cards_to_free(node, request, only_usable=only_usable) for only_usable in (True, False))
    return [] if node.reason is None else next(filter(None, plans), [])


def _change_hopeless(node: EvaluatedNode, nodes: Sequence[EvaluatedNode], pod_request: PodRequest) -> ActionView:
    """For the nearest node, which would not do if it were empty."""
    if node.reason is UnfitReason.TOO_LARGE:
        return _shrink_request([each for each in nodes if each.exclusion_rank == node.exclusion_rank], pod_request)
    if node.reason in NEEDS_OTHER_NODES and not node.node.problem:
        return _describe_new_node(pod_request)
    return ActionView("none", node=node.name)


def _shrink_request(nodes: Sequence[EvaluatedNode], pod_request: PodRequest) -> ActionView:
    """To the largest card of the nearest node with one that the pod may use."""
    for node in nodes:
        if node.reason is UnfitReason.TOO_LARGE and (cards := select_permitted_cards(node, pod_request.card_request)):
            return ActionView("change-request", node=node.name, amount=max(card.units for card in cards))
    return _describe_new_node(pod_request)


def _describe_new_node(pod_request: PodRequest) -> ActionView:
    request = pod_request.card_request
    return ActionView("add-node", amount=request.least_card_units, count=request.count)


def _remove_obstacle(node: EvaluatedNode, obstacle: Obstacle) -> ActionView:
    match obstacle.subject:
        case Label(key, value):
            return ActionView("label", node=node.name, key=key, value=value)
        case Taint():
            return ActionView("remove-taint", node=node.name, key=obstacle.subject.key, value=obstacle.subject.effect)
        case Shortage(resource, needed, free, total):
            is_enough = needed <= total
            amount = needed - free if is_enough else total
            return ActionView("free" if is_enough else "change-request", node=node.name, key=resource, amount=amount)
    return ActionView("uncordon" if obstacle.reason == UNSCHEDULABLE_REASON else "none", node=node.name)


def _free_cards(node: EvaluatedNode, cards: Sequence[EvaluatedCard]) -> Iterator[ActionView]:
    for each in cards:
        if each.card.cordoned:
            yield ActionView("uncordon", node=node.name, card=each.card.index)
        if not each.card.healthy:
            yield ActionView("none", node=node.name, card=each.card.index)
        if each.missing_units:
            yield ActionView("free", node=node.name, card=each.card.index, amount=each.missing_units)
