"""Converts the evaluation and the pod to parts of an explanation."""

from __future__ import annotations

from extender.settings import ExtenderConfiguration
from vrampack.cards.holding import build_bound_hold, index_cards
from vrampack.cards.node import NodeFacts
from vrampack.cards.records import Record
from vrampack.cards.request import PodRequest
from vrampack.cli.explain.evaluation import EvaluatedCard, EvaluatedNode, describe_card_reason
from vrampack.cli.explain.pod import ExplainedPod
from vrampack.cli.explain.schema import (
    CardView,
    HeldCardView,
    NodeView,
    PlacementView,
    PodView,
    RequestView,
    ScoreTermView,
)


def build_pod_view(subject: ExplainedPod) -> PodView:
    pod, scheduling_fields = subject.pod, subject.scheduling_fields
    return PodView(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        state=subject.state,
        phase=scheduling_fields.status.phase or "",
        scheduler_name=scheduling_fields.scheduler_name,
        scheduling_gates=scheduling_fields.gate_names,
        deleting=pod.is_terminating,
        nominated_node_name=scheduling_fields.status.nominated_node_name or "",
    )


def build_request_view(
    pod_request: PodRequest | None, settings: ExtenderConfiguration, policy: str
) -> RequestView | None:
    if pod_request is None:
        return None
    request = pod_request.card_request
    return RequestView(
        resource=settings.resources.memory,
        unit_mib=settings.unit_mib,
        units=request.units,
        count=request.count,
        whole=request.whole,
        models=tuple(sorted(request.models or ())),
        uuids=tuple(sorted(request.uuids or ())),
        policy=policy,
        problem=pod_request.problem,
    )


def build_node_view(node: EvaluatedNode, pod_request: PodRequest) -> NodeView:
    return NodeView(
        name=node.name,
        reason=node.reason.value if node.reason else None,
        never=node.reason is not None and node.reason.is_unresolvable,
        problem=node.node.problem,
        obstacles=tuple(each.detail for each in node.obstacles),
        legacy=node.node.legacy,
        cards=tuple(_build_card_view(node, each, pod_request) for each in node.cards),
        score=node.score,
        terms=tuple(ScoreTermView(term.name, term.value) for term in node.terms),
        excluded=bool(node.exclusions),
        obstacle_reasons=tuple(each.reason for each in node.obstacles),
    )


def _build_card_view(node: EvaluatedNode, card: EvaluatedCard, pod_request: PodRequest) -> CardView:
    return CardView(
        index=card.card.index,
        uuid=card.card.uuid,
        model=card.card.model,
        healthy=card.card.healthy,
        cordoned=card.card.cordoned,
        free_units=card.card.free_units,
        total_units=card.card.units,
        missing_units=card.missing_units,
        reason=card.reason.value if card.reason else None,
        why=describe_card_reason(node, card, pod_request.card_request),
        pods=card.pods,
        free_instances=card.card.instances.free if card.card.instances is not None else None,
    )


def build_bound_placement(subject: ExplainedPod, facts: NodeFacts | None) -> PlacementView:
    pod = subject.pod
    if facts is None:
        return PlacementView(pod.node_name, (), read_limits(subject), "its node no longer exists")
    hold = build_bound_hold(pod, facts, index_cards(facts))
    if hold.unplaced_reason:
        return PlacementView(pod.node_name, (), read_limits(subject), hold.unplaced_reason)
    uuids = {card.index: card.uuid for card in facts.cards}
    cards = tuple(HeldCardView(index, uuids[index], units) for index, units in sorted(hold.units.items()))
    return PlacementView(pod.node_name, cards, read_limits(subject), "")


def read_limits(subject: ExplainedPod) -> dict[str, int]:
    """What each container may use according to the record; empty if that is damaged."""
    if not isinstance(subject.pod.record, Record):
        return {}
    texts = sorted(subject.limits_mib.items())
    return {name: int(text) for name, text in texts if text.isascii() and text.isdecimal()}


def build_chosen_placement(node: EvaluatedNode, pod_request: PodRequest) -> PlacementView:
    request = pod_request.card_request
    cards = tuple(
        HeldCardView(card.index, card.uuid, request.get_taken_units(card.units))
        for card in sorted(node.chosen_cards, key=lambda card: card.index)
    )
    return PlacementView(node.name, cards, {}, "")
