"""What the engine and the pod said, as parts of an explanation."""

from __future__ import annotations

from extender.settings import ExtenderConfiguration
from vrampack.cards import keys
from vrampack.cards.holding import build_bound_hold, index_cards
from vrampack.cards.node import NodeFacts
from vrampack.cards.records import Record
from vrampack.cards.request import PodRequest
from vrampack.cli.explain.form import CardView, HeldCard, NodeView, Placement, PodView, RequestView
from vrampack.cli.explain.judged import JudgedCard, JudgedNode, why
from vrampack.cli.explain.pod import Subject


def pod_view(subject: Subject) -> PodView:
    pod, words = subject.pod, subject.words
    return PodView(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        state=subject.state,
        phase=words.status.phase or "",
        scheduler_name=words.scheduler_name,
        scheduling_gates=words.gates,
        deleting=pod.is_terminating,
        nominated_node_name=words.status.nominated_node_name or "",
    )


def request_view(ask: PodRequest | None, settings: ExtenderConfiguration, policy: str) -> RequestView | None:
    if ask is None:
        return None
    request = ask.card_request
    return RequestView(
        resource=settings.resources.memory,
        unit_mib=settings.unit_mib,
        units=request.units,
        count=request.count,
        whole=request.whole,
        models=request.models,
        uuids=request.uuids,
        policy=policy,
        problem=request.problem,
    )


def node_view(judged: JudgedNode, ask: PodRequest) -> NodeView:
    return NodeView(
        name=judged.name,
        reason=judged.reason.value if judged.reason else None,
        never=judged.reason is not None and judged.reason.is_unresolvable,
        problem=judged.node.problem,
        obstacles=judged.obstacles,
        legacy=judged.node.legacy,
        cards=tuple(_card_view(judged, each, ask) for each in judged.cards),
    )


def _card_view(judged: JudgedNode, each: JudgedCard, ask: PodRequest) -> CardView:
    return CardView(
        index=each.card.index,
        uuid=each.card.uuid,
        model=each.card.model,
        healthy=each.card.healthy,
        cordoned=each.card.cordoned,
        free_units=each.card.free_units,
        total_units=each.card.units,
        missing_units=each.missing,
        reason=each.reason.value if each.reason else None,
        why=why(judged, each, ask.card_request),
        pods=each.pods,
    )


def bound_placement(subject: Subject, facts: NodeFacts | None) -> Placement:
    pod = subject.pod
    if facts is None:
        return Placement(pod.node_name, (), _limits(subject), "its node is not there any more")
    hold = build_bound_hold(pod, facts, index_cards(facts))
    if hold.unplaced_reason:
        return Placement(pod.node_name, (), _limits(subject), hold.unplaced_reason)
    uuids = {card.index: card.uuid for card in facts.cards}
    cards = tuple(HeldCard(index, uuids[index], units) for index, units in sorted(hold.units.items()))
    return Placement(pod.node_name, cards, _limits(subject), "")


def _limits(subject: Subject) -> dict[str, int]:
    """What each container may use, as the record says; a damaged one is none."""
    if not isinstance(subject.pod.record, Record):
        return {}
    prefix = keys.LIMIT_MIB_PREFIX
    found = {key.removeprefix(prefix): text for key, text in subject.annotations.items() if key.startswith(prefix)}
    return {name: int(text) for name, text in sorted(found.items()) if text.isascii() and text.isdecimal()}


def chosen_placement(judged: JudgedNode, ask: PodRequest) -> Placement:
    request = ask.card_request
    cards = tuple(
        HeldCard(card.index, card.uuid, card.units if request.whole else request.units)
        for card in sorted(judged.chosen, key=lambda card: card.index)
    )
    return Placement(judged.name, cards, {}, "")
