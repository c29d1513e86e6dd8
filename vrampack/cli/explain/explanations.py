"""Builds a pod's explanation from the pod and the cluster. Pure: nothing here reads or writes anything.

A pod that requests nothing, has finished, is being deleted or is bound explains itself; for any other pod every node of
the cluster is evaluated as the extender would evaluate it now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from extender.settings import ExtenderConfiguration
from policies.outlook import Outlook
from vrampack.cards.node import NodeFacts
from vrampack.cards.pod import Pod
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import PodRequest
from vrampack.cards.units import MAX_UNITS, format_memory
from vrampack.cli.explain.actions import list_actions
from vrampack.cli.explain.cluster import ExplainedCluster
from vrampack.cli.explain.evaluation import ClusterEvaluation, EvaluatedNode, evaluate_cluster
from vrampack.cli.explain.kept_places import count_kept_places
from vrampack.cli.explain.next_step import format_cards, format_units, suggest_for_refused
from vrampack.cli.explain.pending_step import suggest_for_fitting, suggest_for_gated, suggest_for_nominated
from vrampack.cli.explain.pod import ExplainedPod, PodSchedulingFields
from vrampack.cli.explain.schema import ActionView, Explanation, NodeView, PlacementView, SchedulerConditionView
from vrampack.cli.explain.views import (
    build_bound_placement,
    build_chosen_placement,
    build_node_view,
    build_pod_view,
    build_request_view,
)
from vrampack.kube.unchecked_rules import list_unchecked_fields

QUANTITY_SUFFIXES = (("Gi", 2**30), ("Mi", 2**20), ("G", 10**9), ("M", 10**6))


def explain_without_cluster(subject: ExplainedPod, settings: ExtenderConfiguration) -> Explanation:
    """Explain a pod that needs no node: it requests nothing, has finished, or is being deleted before it was bound."""
    resource = settings.resources.memory
    headlines = {
        "finished": f"has finished ({subject.scheduling_fields.status.phase}) and holds nothing.",
        "deleting": "is being deleted and was never bound: it will not be placed.",
        "asks-nothing": f"requests no {resource}: the extender does not decide where it goes.",
    }
    findings = _quote_scheduler(subject.scheduling_fields) if subject.state == "asks-nothing" else ()
    headline = f"Pod {subject.pod} {headlines[subject.state]}"
    return _build_explanation(subject, settings, headline, findings=findings)


def explain_bound_pod(subject: ExplainedPod, settings: ExtenderConfiguration, facts: NodeFacts | None) -> Explanation:
    """Explain a bound pod. `facts` are its node's, None when that is gone."""
    return explain_placement(subject, settings, build_bound_placement(subject, facts))


def explain_placement(subject: ExplainedPod, settings: ExtenderConfiguration, placement: PlacementView) -> Explanation:
    """Explain a bound pod by what is known of its cards."""
    pod = subject.pod
    if placement.problem:
        findings = (f"Its cards are not known: {placement.problem}.",)
        return _build_explanation(
            subject, settings, f"Pod {pod} is bound to {pod.node_name}.", findings=findings, placement=placement
        )
    units = sum(card.units for card in placement.cards)
    held = f"{format_units(units)} ({format_memory(units, settings.unit_mib)}) on {format_cards(len(placement.cards))}"
    holds = "is being deleted and, until it is gone, holds" if pod.is_terminating else "is bound and holds"
    headline = f"Pod {pod} {holds} {held} of {pod.node_name}."
    return _build_explanation(subject, settings, headline, placement=placement)


def explain_pending_pod(
    subject: ExplainedPod,
    settings: ExtenderConfiguration,
    pod_request: PodRequest,
    cluster: ExplainedCluster,
    outlook: Outlook | None = None,
) -> Explanation:
    """Explain an unbound pod: every node and card, and the next step. `outlook`: see `evaluate_cluster`.

    `settings` as they were read: whether whole cards are paid for is already part of the request.
    """
    cluster = count_kept_places(cluster, subject.pod)
    evaluation = evaluate_cluster(
        cluster, settings.policy, pod_request, subject.spec, outlook, resource=settings.resources.memory
    )
    policy = settings.policy.choose_policy(pod_request.policy, pod_request.profile).name
    reasons = Counter(node.reason.value for node in evaluation.nodes if node.reason)
    unchecked = tuple(list_unchecked_fields(subject.spec))
    step = _suggest_step(subject, settings, pod_request, evaluation, cluster)
    shown = [node for node in evaluation.nodes if not node.has_no_memory]
    return _build_explanation(
        subject,
        settings,
        f"Pod {subject.pod} is {_describe_pending(subject)} and {describe_request(pod_request, settings.unit_mib)}.",
        findings=(
            *_describe_verdict(evaluation, pod_request, policy),
            *_describe_guess(settings, evaluation, pod_request, cluster.unpaid_use),
            *_describe_bytes_asked(pod_request, settings),
            *_describe_unchecked(unchecked),
            *_quote_scheduler(subject.scheduling_fields),
            *cluster.unread_objects,
        ),
        step=step,
        actions=_list_actions(subject, evaluation, cluster, pod_request),
        policy=policy,
        choice=None if evaluation.chosen_node is None else build_chosen_placement(evaluation.chosen_node, pod_request),
        nodes=tuple(build_node_view(node, pod_request) for node in shown),
        reasons=_sort_by_frequency(reasons),
        obstacle_counts=_sort_by_frequency(Counter(node.obstacles[0].reason for node in shown if node.obstacles)),
        unchecked=unchecked,
        node_count=len(evaluation.nodes),
        nodes_without_memory=len(evaluation.nodes) - len(shown),
    )


def describe_request(pod_request: PodRequest, unit_mib: int) -> str:
    """What the pod requests, as a clause."""
    request = pod_request.card_request
    if not request.is_valid:
        return "its request cannot be met"
    amount = f"{format_units(request.units)} ({format_memory(request.units, unit_mib)})"
    one = request.count == 1
    cards = "a whole card" if one else f"{request.count} whole cards"
    if request.payment is not None:
        asked = pod_request.asked_units
        text = (
            f"asks for {cards} of {format_units(asked)} ({format_memory(asked, unit_mib)}){'' if one else ' together'}"
        )
    elif request.whole:
        text = f"asks for {cards} of at least {amount}"
    else:
        text = f"asks for {amount} on {'one card' if one else f'each of {request.count} cards'}"
    if request.models:
        text += f" of model {' or '.join(sorted(request.models))}"
    return f"{text} named {' or '.join(sorted(request.uuids))}" if request.uuids else text


def _suggest_step(
    subject: ExplainedPod,
    settings: ExtenderConfiguration,
    pod_request: PodRequest,
    evaluation: ClusterEvaluation,
    cluster: ExplainedCluster,
) -> str:
    scheduling_fields = subject.scheduling_fields
    if step := _suggest_waiting(subject.pod, evaluation, cluster):
        return step
    gates = scheduling_fields.gate_names
    if not evaluation.fitting_nodes:
        step = suggest_for_refused(evaluation.nodes, pod_request, settings.resources.memory)
        return suggest_for_gated(gates, step) if gates else step
    if gates:
        return suggest_for_gated(gates, "")
    return suggest_for_fitting(
        scheduling_fields,
        cluster.pods_by_scheduler,
    )


def _list_actions(
    subject: ExplainedPod, evaluation: ClusterEvaluation, cluster: ExplainedCluster, pod_request: PodRequest
) -> tuple[ActionView, ...]:
    if _suggest_waiting(subject.pod, evaluation, cluster):
        return (ActionView("wait", node=subject.pod.node_to_keep),)
    gates = (ActionView("remove-gates"),) if subject.state == "gated" else ()
    return (*gates, *list_actions(evaluation.nodes, pod_request))


def _suggest_waiting(pod: Pod, evaluation: ClusterEvaluation, cluster: ExplainedCluster) -> str:
    """For a pod with a node that has room for it, or that others are leaving; empty for any other."""
    seen, is_fit = (
        cluster.nodes.get(pod.node_to_keep),
        pod.node_to_keep in {node.name for node in evaluation.fitting_nodes},
    )
    if seen is None or not (is_fit or any(hold.state == "terminating" for hold in seen.holds)):
        return ""
    return suggest_for_nominated(pod.node_to_keep, may_bind_late=pod.may_bind_late)


def _build_explanation(  # noqa: PLR0913 - the parts of an explanation, most of them left out by most
    subject: ExplainedPod,
    settings: ExtenderConfiguration,
    headline: str,
    *,
    findings: tuple[str, ...] = (),
    step: str = "",
    actions: tuple[ActionView, ...] = (),
    policy: str = "",
    placement: PlacementView | None = None,
    choice: PlacementView | None = None,
    nodes: tuple[NodeView, ...] = (),
    reasons: Mapping[str, int] | None = None,
    obstacle_counts: Mapping[str, int] | None = None,
    unchecked: tuple[str, ...] = (),
    node_count: int = 0,
    nodes_without_memory: int = 0,
) -> Explanation:
    condition = subject.scheduling_fields.unschedulable_condition
    return Explanation(
        pod=build_pod_view(subject),
        headline=headline,
        findings=findings,
        next=step,
        actions=actions,
        request=build_request_view(subject.pod.request, settings, policy),
        placement=placement,
        choice=choice,
        scheduler=None
        if condition is None
        else SchedulerConditionView(condition.reason or "", condition.message or ""),
        nodes=nodes,
        reasons=dict(reasons or {}),
        obstacle_counts=dict(obstacle_counts or {}),
        unchecked=unchecked,
        node_count=node_count,
        nodes_without_memory=nodes_without_memory,
    )


def _describe_verdict(evaluation: ClusterEvaluation, pod_request: PodRequest, policy: str) -> tuple[str, ...]:
    """How many nodes fit, in the form of the scheduler's own message, and how much is free in all."""
    reasons = Counter(filter(None, map(_get_first_reason, evaluation.nodes)))
    refused = ", ".join(f"{count} {reason}" for reason, count in _sort_by_frequency(reasons).items())
    counts = f"{len(evaluation.fitting_nodes)}/{len(evaluation.nodes)} nodes fit" + (
        f": {refused}." if refused else "."
    )
    if (first := evaluation.chosen_node) is not None:
        cards = " and ".join(f"GPU{card.index}" for card in sorted(first.chosen_cards, key=lambda card: card.index))
        return (counts, f"Policy {policy} would take {first.name} {cards}: {_describe_score(first)}.")
    usable = [node for node in evaluation.nodes if not node.obstacles and not node.node.problem]
    free = [node.node.free_units for node in usable if node.node.free_units]
    is_for_room = UnfitReason.NO_EMPTY_CARD.value in reasons or not pod_request.card_request.whole
    if sum(free) < pod_request.asked_units or pod_request.problem or not is_for_room:
        return (counts,)
    nodes = "1 node has" if len(free) == 1 else f"{len(free)} nodes have"
    return (counts, f"{nodes} {format_units(sum(free))} free together, but not {_describe_together(pod_request)}.")


def _get_first_reason(node: EvaluatedNode) -> str | None:
    """Of the scheduler, which asks the extender only about nodes that pass its own filters."""
    if node.obstacles:
        return node.obstacles[0].reason
    return node.reason.value if node.reason is not None else None


def _describe_unchecked(fields: Collection[str]) -> tuple[str, ...]:
    return (f"Not checked here: {', '.join(fields)}.",) if fields else ()


def _describe_guess(
    settings: ExtenderConfiguration, evaluation: ClusterEvaluation, pod_request: PodRequest, unpaid_use: str
) -> tuple[str, ...]:
    """That nobody has set whether whole cards are paid for, if this decides about the pod."""
    request, chosen = pod_request.card_request, evaluation.chosen_node
    if settings.rules.whole_cards is not None or not (request.whole and request.is_valid):
        return ()
    if request.payment is not None:
        guess, cause = "paid", "no running pod speaks against it"
        is_decisive = any(node.reason is UnfitReason.UNPAID for node in evaluation.nodes)
    else:
        guess, cause = "as-requested", unpaid_use
        is_decisive = chosen is not None and sum(card.units for card in chosen.chosen_cards) > pod_request.asked_units
    if not is_decisive:
        return ()
    text = f"The configuration that was read does not set rules.whole_cards, and {guess} holds because {cause}"
    return (f"{text}: set it to paid or as-requested.",)


def _describe_score(node: EvaluatedNode) -> str:
    terms = " + ".join(f"{term.value:.4g} {term.name}" for term in node.terms)
    return f"score {node.score:.4g} = {terms}" if node.score is not None else ""


def _describe_bytes_asked(pod_request: PodRequest, settings: ExtenderConfiguration) -> tuple[str, ...]:
    """A hint for a number of units that no card has: `4Gi` means four billion units."""
    asked = max((each.units for each in pod_request.containers), default=0)
    if asked <= MAX_UNITS:
        return ()
    suffix, size = next((pair for pair in QUANTITY_SUFFIXES if asked % pair[1] == 0), ("", 1))
    quantity, memory = f"{asked // size}{suffix}", f"{asked // size} {suffix}B"
    units, unit = -(-asked // (settings.unit_mib << 20)), format_memory(1, settings.unit_mib)
    meaning = f"{quantity} means {asked} units of {unit}: {settings.resources.memory} counts units, not bytes."
    return (f"{meaning} For {memory} ask for {units}.",)


def _describe_together(pod_request: PodRequest) -> str:
    request = pod_request.card_request
    if request.whole:
        return f"{'an empty card' if request.count == 1 else f'{request.count} empty cards on one node'}"
    if request.count == 1:
        return f"{request.units} on one card that the pod may take"
    return f"{request.units} on each of {request.count} cards of one node"


def _sort_by_frequency(reasons: Mapping[str, int]) -> dict[str, int]:
    """The most frequent first, then the scheduler's own, which come before the extender's."""
    order = [reason.value for reason in UnfitReason]
    return dict(
        sorted(
            reasons.items(),
            key=lambda item: (-item[1], order.index(item[0]) if item[0] in order else -1, item[0]),
        )
    )


def _quote_scheduler(scheduling_fields: PodSchedulingFields) -> tuple[str, ...]:
    if scheduling_fields.unschedulable_condition is None or not scheduling_fields.unschedulable_condition.message:
        return ()
    return (f"Scheduler {scheduling_fields.scheduler_name} says: {scheduling_fields.unschedulable_condition.message}",)


def _describe_pending(subject: ExplainedPod) -> str:
    return "held back by its scheduling gates" if subject.state == "gated" else "pending"
