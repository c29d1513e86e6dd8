"""How a bind ended, and what follows from that for the place, for the node and for the scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from vrampack.cards.pod import Pod
from vrampack.cards.records import Record
from vrampack.kube.errors import RefusedError

OUTCOME_UNKNOWN = "bind outcome unknown"
"""How an answer begins when it is not known whether the pod is bound."""
PLACEHOLDER_REFUSAL = "a placeholder for an autoscaler gets no node"
API_FAILURES = frozenset({"api_error", "not_written", "deadline", "unready"})
"""Results that say nothing against the node."""


@dataclass(frozen=True, slots=True)
class BindOutcome:
    """How a bind ended: one of `metrics.BIND_RESULTS`, and the text for the scheduler, empty when bound."""

    result: str
    error: str = ""


BOUND_OUTCOME = BindOutcome("ok")


@dataclass(frozen=True, slots=True)
class StaleBinding:
    """The Binding was refused because the pod has changed since; nothing was bound, and it can no longer land."""

    pod: Pod
    """The pod as it is now: unbound."""


def name_refusal(error: RefusedError) -> str:
    """The result of a Binding that the API server refused, other than with 409."""
    match error.status:
        case HTTPStatus.NOT_FOUND:
            return "pod_gone"
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.TOO_MANY_REQUESTS:
            return "not_written"
        case HTTPStatus.FORBIDDEN:
            return "forbidden"
        case _:
            return "refused"


def resolve_already_bound(pod: Pod, node_name: str) -> BindOutcome:
    """Success if we bound the pod to this node, which is what the call asked for; otherwise a conflict."""
    is_by_us = pod.request is None or (isinstance(pod.record, Record) and pod.record.is_ours)
    if pod.node_name == node_name and is_by_us:
        return BOUND_OUTCOME
    by = "" if is_by_us else " by another program"
    return BindOutcome("conflict", f"pod {pod} is already bound to node {pod.node_name}{by}; nothing was bound")
