"""Compares the embedded scheduler with recorded decisions: each is made on the cluster as the earlier ones left it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.support.scheduler_decisions.openb_sample import node_name
from tests.support.scheduler_decisions.recording import NOWHERE, DecisionRecording, RecordedDecision
from vrampack.cards.host_room import HostResources
from vrampack.simulator.packing.scheduler_choice import SchedulerChoice, count_wanted_nodes


def find_disagreements(recording: DecisionRecording) -> Iterator[str]:
    """One text for each disagreement; none if both would have done the same, apart from random choices.

    Threads find nodes in an order of their own: only where there was one must the same nodes have been scored.
    """
    names = [node_name(position) for position in range(len(recording.nodes))]
    hosts = {
        name: HostResources(node.cpu_milli, node.memory_mib) for name, node in zip(names, recording.nodes, strict=True)
    }
    units = {name: node.units for name, node in zip(names, recording.nodes, strict=True)}
    choice = SchedulerChoice(hosts, Random(0), units)
    for number, decision in enumerate(recording.decisions):
        chosen = None if decision.chosen == NOWHERE else names[decision.chosen]
        scored = [names[position] for position in decision.candidates]
        found = [_judge_filters(choice, decision, names, scored), _judge_scores(choice, decision, scored)]
        if scored and chosen not in _list_best(choice, decision, scored):
            found.append(f"{chosen} is none of the best")
        if recording.parallelism == 1:
            found.append(_judge_sample(choice, decision, scored))
        yield from (f"decision {number}, {decision.request}: {text}" for text in found if text)
        if chosen is not None:
            choice.charge_host(chosen, HostResources(*decision.request[:2]), decision.request[2])


def _judge_filters(choice: SchedulerChoice, decision: RecordedDecision, names: list[str], scored: list[str]) -> str:
    """The same nodes fit; of more than are wanted, so many of them were scored."""
    *host, units = decision.request
    feasible = [name for name in names if choice.has_room(name, HostResources(*host), units)]
    wanted = count_wanted_nodes(len(names))
    if len(feasible) <= wanted:
        is_same = feasible == scored and decision.evaluated in (len(names), 0)
    else:
        refused = decision.evaluated - len(scored)
        is_same = len(scored) == wanted and set(scored) <= set(feasible) and refused <= len(names) - len(feasible)
    return "" if is_same else f"finds {feasible}, the real one {scored} of {decision.evaluated}"


def _judge_sample(choice: SchedulerChoice, decision: RecordedDecision, scored: list[str]) -> str:
    *host, units = decision.request
    sampled = sorted(choice.list_feasible_nodes(HostResources(*host), units))
    return "" if sampled == scored else f"looks at {sampled}, the real one at {scored}"


def _judge_scores(choice: SchedulerChoice, decision: RecordedDecision, scored: list[str]) -> str:
    if not decision.emptiness:
        return "" if len(scored) < 2 else "was not scored by the real one"
    ours = [choice.score_node(name, HostResources(*decision.request[:2])) for name in scored]
    theirs = list(zip(decision.emptiness, decision.balance, strict=True))
    return "" if ours == theirs else f"scores {scored} {ours}, the real one {theirs}"


def _list_best(choice: SchedulerChoice, decision: RecordedDecision, scored: list[str]) -> list[str]:
    extender = dict(zip(scored, decision.extender, strict=True)) if decision.extender else {}
    return choice.list_best_nodes(scored, HostResources(*decision.request[:2]), extender)
