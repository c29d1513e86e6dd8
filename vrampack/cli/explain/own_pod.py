"""Explains a pod to a reader who may not list every node and pod: by what the extender and the scheduler wrote on the pod itself."""

from __future__ import annotations

from extender.settings import ExtenderConfiguration
from vrampack.cards import well_known
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.records import Record
from vrampack.cli.explain.explanations import describe_request, explain_placement, explain_without_cluster
from vrampack.cli.explain.pod import ExplainedPod
from vrampack.cli.explain.schema import Explanation, HeldCardView, PlacementView, SchedulerConditionView
from vrampack.cli.explain.views import build_pod_view, build_request_view, read_limits
from vrampack.kube.pod_conditions import PodCondition

NO_CLUSTER = "You may not list all nodes and pods, so no cards are shown: this is what is written on the pod."
NO_LABELS = "You may not list namespaces, whose labels the rules name, so no cards are shown: this is what is written on the pod."


def explain_by_own_pod(subject: ExplainedPod, settings: ExtenderConfiguration) -> Explanation:
    """The same value as an explanation by the whole cluster, without nodes."""
    if subject.state == "bound":
        return explain_placement(subject, settings, _read_placement(subject))
    if subject.pod.request is None or not subject.needs_cluster:
        return explain_without_cluster(subject, settings)
    fields, request = subject.scheduling_fields, subject.pod.request
    answer, scheduled = fields.find_condition(well_known.PLACEMENT_CONDITION), fields.unschedulable_condition
    said = () if scheduled is None or not scheduled.message else (scheduled.message,)
    held_back = "held back by its scheduling gates" if subject.state == "gated" else "pending"
    return Explanation(
        pod=build_pod_view(subject),
        headline=f"Pod {subject.pod} is {held_back} and {describe_request(request, settings.unit_mib)}.",
        findings=(
            *_quote_extender(answer),
            *(f"Scheduler {fields.scheduler_name} says: {text}" for text in said),
            NO_CLUSTER if subject.knows_rules else NO_LABELS,
        ),
        next=_suggest_step(subject, answer),
        request=build_request_view(request, settings, ""),
        scheduler=None if scheduled is None else SchedulerConditionView(scheduled.reason or "", *(said or ("",))),
    )


def _quote_extender(answer: PodCondition | None) -> tuple[str, ...]:
    if answer is None or not answer.message:
        return ("No extender has refused it: the scheduler has not tried it, or keeps it from every node itself.",)
    when = f", {answer.last_transition_time}" if answer.last_transition_time else ""
    return (f"The extender says ({answer.reason}{when}): it {answer.message}.",)


def _suggest_step(subject: ExplainedPod, answer: PodCondition | None) -> str:
    if subject.state == "gated":
        return f"wait for the gates: {', '.join(subject.scheduling_fields.gate_names)}"
    reasons = [reason for reason in UnfitReason if answer is not None and reason.condition_reason == answer.reason]
    if not reasons:
        return "wait for the extender's answer, or do what the scheduler's message says"
    if reasons[0].is_unresolvable:
        return "change the request or the pod's selectors: waiting does not help"
    return "wait until memory is freed, or ask for less, for another model, or for other nodes"


def _read_placement(subject: ExplainedPod) -> PlacementView:
    record = subject.pod.record
    if not isinstance(record, Record):
        return PlacementView(subject.pod.node_name, (), {}, "it has no record that can be read")
    cards = [HeldCardView(share.index, share.uuid, share.units) for share in record.shares if share.index is not None]
    return PlacementView(subject.pod.node_name, tuple(cards), read_limits(subject), "")
