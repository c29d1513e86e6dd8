"""The next step for a pod that the extender would accept: it is gated, fits but is not bound, or was not tried yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from extender.events import EventReason
from vrampack.cards.reasons import UnfitReason
from vrampack.cli.explain.next_step import join_items
from vrampack.cli.explain.pod import PodSchedulingFields
from vrampack.kube.node_filters import PODS_REASON, PORTS_REASON, SELECTOR_REASON, UNSCHEDULABLE_REASON

CHECKED_REASONS = (
    *(reason.value for reason in UnfitReason),
    SELECTOR_REASON,
    UNSCHEDULABLE_REASON,
    PORTS_REASON,
    PODS_REASON,
    "node(s) had untolerated taint",
    "Insufficient ",
)
"""How reasons begin that are gone if the pod fits now."""
SHIPPED_SCHEDULER_NAME = "vrampack"
"""The name in the shipped scheduler configuration."""


def suggest_for_gated(gates: Sequence[str], following_step: str) -> str:
    """Remove the gates first; `following_step`, whatever else is missing, can be done meanwhile."""
    step = f"its scheduling gates hold it back: {join_items(gates)}; whatever set them must remove them"
    return f"{step}. Then: {following_step}" if following_step else step


def suggest_for_nominated(node_name: str, *, may_bind_late: bool) -> str:
    """Its cards are kept on this node."""
    if may_bind_late:
        return (
            f"wait: it goes to {node_name} once its volumes, claims and group are ready, "
            "or once pods of lower priority have left for it"
        )
    return f"wait: pods of lower priority are leaving {node_name} for it"


def suggest_for_fitting(pod_fields: PodSchedulingFields, schedulers: Counter[str]) -> str:
    """What to do for a pod that fits: check the scheduler, or wait for it."""
    if pod_fields.unschedulable_condition is None:
        return _suggest_checking_scheduler(pod_fields.scheduler_name, schedulers)
    return _suggest_for_refused_attempt(pod_fields, schedulers)


def _suggest_checking_scheduler(scheduler: str, schedulers: Counter[str]) -> str:
    return f"no scheduler has looked at it yet: see that one named {scheduler} runs{_describe_other_scheduler(scheduler, schedulers)}"


def _suggest_for_refused_attempt(scheduling_fields: PodSchedulingFields, schedulers: Counter[str]) -> str:
    """The step if the scheduler's last attempt failed, for our reasons or for its own."""
    message = (
        scheduling_fields.unschedulable_condition.message if scheduling_fields.unschedulable_condition else None
    ) or ""
    if UnfitReason.GROUP.value in message:
        return (
            f"its group cannot start: the pod's event {EventReason.GROUP_DOES_NOT_FIT} says for how many of its pods there are cards; "
            "free cards for the others, or make the group smaller"
        )
    if _names_only_checked(message):
        return "wait: there is room since its last attempt, and the scheduler tries again within five minutes"
    hint = _describe_other_scheduler(scheduling_fields.scheduler_name, schedulers)
    return f"the scheduler's message above says what else it lacks{hint}"


def _names_only_checked(message: str) -> bool:
    """Whether all reasons of `0/9 nodes are available: 8 Insufficient cpu, 1 card model not allowed. preemption: ..` are checked here."""
    _, has_reasons, rest = message.partition("nodes are available: ")
    reasons = rest.partition(". ")[0].removesuffix(".").split(", ")
    return bool(has_reasons) and all(each.lstrip("0123456789 ").startswith(CHECKED_REASONS) for each in reasons)


def _describe_other_scheduler(scheduler: str, schedulers: Counter[str]) -> str:
    """A hint if that scheduler may not be one that calls the extender, as far as the cluster shows."""
    if scheduler in schedulers:
        return ""
    if schedulers:
        return f"; its schedulerName is {scheduler}, the pods that the extender bound came through {join_items(sorted(schedulers))}"
    if scheduler == SHIPPED_SCHEDULER_NAME:
        return ""
    return f"; its schedulerName is {scheduler}, the scheduler that ships with the extender is {SHIPPED_SCHEDULER_NAME}"
