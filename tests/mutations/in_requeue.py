"""Breaks that affect waiting pods: places kept for nominated pods, and kicks."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutations.breaks import Mutation

ANSWERS = "tests/extender/test_answer_writer.py"
EVICTOR = "tests/extender/test_refused_pod_evictor.py"
NOMINATIONS = "tests/extender/test_nominator.py"
KICKS = "tests/extender/test_activator.py"

WAITING: Mapping[str, Mutation] = {
    "a pod that was told is told by every process again": Mutation(
        "extender/answers/answer_writer.py",
        "if answer is not None and answer.reason.condition_reason != pod.told_reason:",
        "if answer is not None:",
        f"{ANSWERS}::test_a_pod_is_told_again_only_for_another_kind_of_reason",
    ),
    "the youngest refused pods are told first": Mutation(
        "extender/answers/answer_writer.py",
        "first = heapq.nsmallest(PODS_PER_ROUND, due, key=self._rank_pod)",
        "first = heapq.nlargest(PODS_PER_ROUND, due, key=self._rank_pod)",
        f"{ANSWERS}::test_two_pods_are_told_in_a_second_and_the_oldest_first",
    ),
    "the nearest node is the one with least room": Mutation(
        "policies/engine/filter_outcome.py",
        "return min(nodes, key=lambda node: (-rank_reason(node.reason), -node.free_units, node.name), default=None)",
        "return max(nodes, key=lambda node: (-rank_reason(node.reason), -node.free_units, node.name), default=None)",
        f"{ANSWERS}::test_the_condition_and_the_event_say_what_is_missing[too little is free]",
    ),
    "a pod of equal priority takes the card of a nominated one": Mutation(
        "extender/state/nominator.py",
        "position = bisect_left(self._floors, self._get_priority(uid))",
        "position = bisect_left(self._floors, self._get_priority(uid) + 1)",
        f"{NOMINATIONS}::test_a_nominees_card_is_kept_from_lower_and_equal_priority_only",
    ),
    "of two nominated pods the less important one has the card": Mutation(
        "extender/state/nominator.py",
        "return sorted([*nominees, *more], key=lambda pod: (-pod.priority, pod.created_at, pod.uid))",
        "return sorted([*nominees, *more], key=lambda pod: (pod.priority, pod.created_at, pod.uid))",
        f"{NOMINATIONS}::test_the_more_important_of_two_nominees_keeps_the_card",
    ),
    "a node's word reaches pods of other nodes": Mutation(
        "extender/eviction/refused_pod_evictor.py",
        "if pod is None or pod.node_name != refusal.node_name or not pod.can_hold_memory:",
        "if pod is None:",
        f"{EVICTOR}::test_a_node_can_report_only_its_own_pods[a pod of another node]",
    ),
    "a bare pod is evicted": Mutation(
        "extender/eviction/refused_pod_evictor.py",
        "if not seen.is_controlled or seen.is_static:",
        "if False:",
        f"{EVICTOR}::test_a_pod_that_no_controller_recreates_is_kept_and_gets_one_event[bare]",
    ),
}
