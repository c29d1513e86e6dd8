"""Breaks that affect waiting pods: places kept for nominated pods, and kicks."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutations.breaks import Mutation

EVICTOR = "tests/extender/test_refused_pod_evictor.py"
NOMINATIONS = "tests/extender/test_nominator.py"
KICKS = "tests/extender/test_activator.py"

WAITING: Mapping[str, Mutation] = {
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
