"""From a pod and the cluster to its explanation. Pure: nothing here reads or writes anything.

A pod that asks nothing, has finished, is being deleted or is bound is explained by itself; any other one by every
node of the cluster, judged as the extender would judge it now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from extender.settings import ExtenderConfiguration
from vrampack.cards.fit import UnfitReason
from vrampack.cards.node import NodeFacts
from vrampack.cards.request import PodRequest
from vrampack.cli.explain.cluster import Cluster
from vrampack.cli.explain.form import Explanation, NodeView, Placement, SchedulerWords
from vrampack.cli.explain.judged import Judgement, judge
from vrampack.cli.explain.next_step import cards_text, step_for_refused, units_text
from vrampack.cli.explain.pod import PodWords, Subject
from vrampack.cli.explain.views import bound_placement, chosen_placement, node_view, pod_view, request_view
from vrampack.cli.explain.waiting import step_for_fitting, step_for_gated


def explain_alone(subject: Subject, settings: ExtenderConfiguration) -> Explanation:
    """A pod that no node has a say in: it asks nothing, has finished, or goes before it was bound."""
    resource = settings.resources.memory
    headlines = {
        "finished": f"has finished ({subject.words.status.phase}) and holds nothing.",
        "deleting": "is being deleted and was never bound: it will not be placed.",
        "asks-nothing": f"asks no {resource}: the extender has no part in where it goes.",
    }
    findings = _words_of_scheduler(subject.words) if subject.state == "asks-nothing" else ()
    headline = f"Pod {subject.pod} {headlines[subject.state]}"
    return _explanation(subject, settings, headline, findings=findings)


def explain_bound(subject: Subject, settings: ExtenderConfiguration, facts: NodeFacts | None) -> Explanation:
    """A pod that is bound. `facts` are its node's, None when that is gone."""
    pod = subject.pod
    placement = bound_placement(subject, facts)
    if placement.problem:
        findings = (f"Its cards are not known: {placement.problem}.",)
        return _explanation(
            subject, settings, f"Pod {pod} is bound to {pod.node_name}.", findings=findings, placement=placement
        )
    units = sum(card.units for card in placement.cards)
    held = f"{units_text(units)} ({_memory(units, settings.unit_mib)}) on {cards_text(len(placement.cards))}"
    holds = "is being deleted and, until it is gone, holds" if pod.is_terminating else "is bound and holds"
    headline = f"Pod {pod} {holds} {held} of {pod.node_name}."
    return _explanation(subject, settings, headline, placement=placement)


def explain_waiting(
    subject: Subject, settings: ExtenderConfiguration, ask: PodRequest, cluster: Cluster
) -> Explanation:
    """A pod that is not bound: every node and card, and the next step."""
    judgement = judge(cluster, settings.policy, ask, subject.words)
    policy = settings.policy.choose_policy(ask.policy)
    reasons = Counter(node.reason for node in judgement.nodes if node.reason)
    step = _step(subject, settings, ask, judgement, cluster)
    shown = [node for node in judgement.nodes if not node.has_no_memory]
    return _explanation(
        subject,
        settings,
        f"Pod {subject.pod} is {_waiting(subject)} and {asked_text(ask, settings.unit_mib)}.",
        findings=(
            *_verdict(judgement, ask, reasons, policy),
            *_words_of_scheduler(subject.words),
            *cluster.unread,
        ),
        step=step,
        policy=policy,
        choice=None if judgement.choice is None else chosen_placement(judgement.choice, ask),
        nodes=tuple(node_view(node, ask) for node in shown),
        reasons={reason.value: count for reason, count in _by_frequency(reasons)},
        node_count=len(judgement.nodes),
        nodes_without_memory=len(judgement.nodes) - len(shown),
    )


def asked_text(ask: PodRequest, unit_mib: int) -> str:
    """What the pod asks, in words."""
    request = ask.card_request
    if request.problem:
        return "its request cannot be served"
    amount = f"{units_text(request.units)} ({_memory(request.units, unit_mib)})"
    one = request.count == 1
    if request.whole:
        text = f"asks {'a whole card' if one else f'{request.count} whole cards'} of at least {amount}"
    else:
        text = f"asks {amount} on {'one card' if one else f'each of {request.count} cards'}"
    if request.models:
        text += f" of model {' or '.join(request.models)}"
    return f"{text} named {' or '.join(request.uuids)}" if request.uuids else text


def _step(
    subject: Subject, settings: ExtenderConfiguration, ask: PodRequest, judgement: Judgement, cluster: Cluster
) -> str:
    words = subject.words
    if not judgement.fitting:
        step = step_for_refused(judgement.nodes, ask, settings.resources.memory)
        return step_for_gated(words.gates, step) if words.gates else step
    if words.gates:
        return step_for_gated(words.gates, "")
    return step_for_fitting(judgement, words, cluster.schedulers)


def _explanation(  # noqa: PLR0913 - the parts of an explanation, most of them left out by most
    subject: Subject,
    settings: ExtenderConfiguration,
    headline: str,
    *,
    findings: tuple[str, ...] = (),
    step: str = "",
    policy: str = "",
    placement: Placement | None = None,
    choice: Placement | None = None,
    nodes: tuple[NodeView, ...] = (),
    reasons: Mapping[str, int] | None = None,
    node_count: int = 0,
    nodes_without_memory: int = 0,
) -> Explanation:
    refusal = subject.words.refusal
    return Explanation(
        pod=pod_view(subject),
        headline=headline,
        findings=findings,
        next=step,
        request=request_view(subject.pod.request, settings, policy),
        placement=placement,
        choice=choice,
        scheduler=None if refusal is None else SchedulerWords(refusal.reason or "", refusal.message or ""),
        nodes=nodes,
        reasons=dict(reasons or {}),
        node_count=node_count,
        nodes_without_memory=nodes_without_memory,
    )


def _verdict(judgement: Judgement, ask: PodRequest, reasons: Counter[UnfitReason], policy: str) -> tuple[str, ...]:
    """How many nodes fit, in the form of the scheduler's own message, and how much is free in all."""
    total, fitting = len(judgement.nodes), judgement.fitting
    refused = ", ".join(f"{count} {reason.value}" for reason, count in _by_frequency(reasons))
    counts = f"{len(fitting)}/{total} nodes fit" + (f": {refused}." if refused else ".")
    if (first := judgement.choice) is not None:
        cards = " and ".join(f"GPU{card.index}" for card in sorted(first.chosen, key=lambda card: card.index))
        return (counts, f"Policy {policy} would take {first.name} {cards}.")
    free = [node.node.free_units for node in judgement.nodes if not node.node.problem and node.node.free_units]
    if sum(free) < ask.card_request.units * ask.card_request.count or ask.card_request.problem:
        return (counts,)
    nodes = "1 node has" if len(free) == 1 else f"{len(free)} nodes have"
    return (counts, f"{nodes} {units_text(sum(free))} free together, but not {_together(ask)}.")


def _together(ask: PodRequest) -> str:
    request = ask.card_request
    if request.whole:
        return f"{'an empty card' if request.count == 1 else f'{request.count} empty cards on one node'}"
    if request.count == 1:
        return f"{request.units} on one card that the pod may take"
    return f"{request.units} on each of {request.count} cards of one node"


def _by_frequency(reasons: Counter[UnfitReason]) -> list[tuple[UnfitReason, int]]:
    order = list(UnfitReason)
    return sorted(reasons.items(), key=lambda item: (-item[1], order.index(item[0])))


def _words_of_scheduler(words: PodWords) -> tuple[str, ...]:
    if words.refusal is None or not words.refusal.message:
        return ()
    return (f"Scheduler {words.scheduler_name} says: {words.refusal.message}",)


def _waiting(subject: Subject) -> str:
    return "held back by its scheduling gates" if subject.state == "gated" else "pending"


def _memory(units: int, unit_mib: int) -> str:
    mib = units * unit_mib
    return f"{mib} MiB" if mib % 1024 else f"{mib // 1024} GiB"
