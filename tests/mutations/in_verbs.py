"""Breaks of the policies, of filter, prioritize and preempt, and of what is remembered between them."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutations.breaks import Mutation

POLICIES = "tests/policies/test_policies.py"
ENGINE = "tests/policies/test_engine.py"
ADJUSTED = "tests/policies/test_adjusted_policy.py"
RECORDED = "tests/wire/test_recorded.py"
PROMISES = "tests/extender/test_soft_reservations.py"
NOES = "tests/extender/test_rejection_cache.py"
DECIDING = "tests/extender/test_decide_setting.py"
VICTIMS = "tests/extender/test_victims.py"
PREEMPTION = "tests/extender/test_preemption.py"

VERBS: Mapping[str, Mutation] = {
    "a tenant finds on its own nodes what a new tenant finds": Mutation(
        "policies/engine/fit_index.py",
        "indexes.append(_find_index(self._parts, kind, self._cluster, request.rules.tenant))",
        "pass",
        "tests/extender/test_rules.py::test_a_relabelled_pod_belongs_to_another_tenant",
    ),
    "a class is good for ever": Mutation(
        "policies/engine/fit_index.py",
        "self.classes[name] = self._fit_classes.find_class(shape)",
        "self.classes.setdefault(name, self._fit_classes.find_class(shape))",
        f"{ENGINE}::test_a_changed_node_is_evaluated_again",
    ),
    "cards kept for nominated pods are free for all": Mutation(
        "policies/engine/fit_index.py",
        "indexes.append(_find_index(self._parts, kind, kept))",
        "pass",
        f"{ENGINE}::test_pods_with_the_same_floor_see_the_same_cards_kept",
    ),
    "a pod of equal priority is evicted": Mutation(
        "extender/preemption/victims.py",
        "if hold.state in EVICTABLE and hold.pod.priority < priority and hold.pod.uid not in protected_uids",
        "if hold.state in EVICTABLE and hold.pod.priority <= priority and hold.pod.uid not in protected_uids",
        f"{VICTIMS}::test_victims_match_the_table[never an equal priority]",
    ),
    "a pod is evicted from a place that it may never get": Mutation(
        "extender/preemption/victims.py",
        "if hold.state in EVICTABLE and hold.pod.priority < priority and hold.pod.uid not in protected_uids",
        "if hold.pod.priority < priority and hold.pod.uid not in protected_uids",
        f"{VICTIMS}::test_victims_match_the_table[reserved places stay]",
    ),
    "a proposed victim of equal priority is let pass": Mutation(
        "extender/preemption/preempt.py",
        "if any(victim.priority >= pod.priority for victim in known):",
        "if any(victim.priority > pod.priority for victim in known):",
        f"{PREEMPTION}::test_preempt_keeps_completes_or_drops_each_proposal[a proposed one is not lower]",
    ),
    "a pod that may not preempt does": Mutation(
        "extender/preemption/preempt.py",
        "names: Collection[str] = found if proposal.may_preempt and self._may_gain(pod) else ()",
        "names: Collection[str] = found if self._may_gain(pod) else ()",
        f"{PREEMPTION}::test_a_pod_that_may_not_preempt_is_given_no_node",
    ),
    "preempt answers by what a node was before others had their turn": Mutation(
        "extender/preemption/preempt.py",
        "names = self._list_changed_nodes(generation, found)",
        "names = ()",
        f"{PREEMPTION}::test_a_node_that_changes_during_the_call_is_evaluated_again",
    ),
    "two calls of preempt are answered at once": Mutation(
        "extender/preemption/preempt.py",
        "async with self._one_call:",
        "if self._one_call:",
        f"{PREEMPTION}::test_two_pods_that_preempt_at_once_are_not_given_one_card",
    ),
    "what a pod asks and its priority are believed from the call": Mutation(
        "extender/preemption/preempt.py",
        "pod = self._ledger.get_pod(proposal.pod.uid) or proposed_pod",
        "pod = proposed_pod",
        f"{PREEMPTION}::test_request_and_priority_come_from_the_api_server",
    ),
    "a shape says nothing of instances": Mutation(
        "vrampack/cards/shape.py",
        "(-1, False) if room is None else (room.free, room.are_per_container),",
        "(-1, False),",
        "tests/policies/test_node_rankings.py::test_nodes_that_differ_in_free_instances_are_in_different_states",
    ),
    "a pod of a namespace that is not seen is let past": Mutation(
        "extender/state/namespaces.py",
        "if not self._reads_namespaces or namespace in self._namespaces:",
        "if True:",
        "tests/extender/test_namespaces.py::test_verbs_are_not_ready_for_pods_of_unseen_namespaces",
    ),
    "a waiting pod keeps the rules that it was read under": Mutation(
        "extender/state/ledger.py",
        "settled = self._pods.settle_unbound(in_force, settled_pods)",
        "settled: list[SettledPod] = []",
        "tests/extender/test_rules.py::test_a_waiting_pod_is_bound_by_the_current_rules",
    ),
    "a fault leaves the caches as they are": Mutation(
        "extender/scheduling/cache_rebuild.py",
        "cache.forget_all()",
        "pass",
        "tests/extender/test_cache_rebuild.py::test_a_task_that_fails_begins_again_and_caches_are_not_rebuilt_without_end",
    ),
}
