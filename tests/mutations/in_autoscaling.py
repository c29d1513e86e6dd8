"""Breaks of what keeps autoscalers from nodes: which nodes, and who writes."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutations.breaks import Mutation

STRANDED = "tests/extender/test_stranded_nodes.py"
PROTECTION = "tests/extender/test_node_protection.py"

PLACEHOLDERS = "tests/extender/test_placeholders.py"

PROTECTIONS: Mapping[str, Mutation] = {
    "pods are moved to a node that may go itself": Mutation(
        "extender/autoscaling/stranded_nodes.py",
        "found = None if name in self._leaving else self._trial.find_placement(name, pod.request, BINPACK)",
        "found = self._trial.find_placement(name, pod.request, BINPACK)",
        f"{STRANDED}::test_of_two_nodes_whose_pods_need_the_same_room_one_may_go",
    ),
    "every node counts as one that the pods may use": Mutation(
        "extender/autoscaling/node_rules.py",
        "verdict = spec is not None and not find_placement_obstacle(spec, node)",
        "verdict = spec is not None",
        f"{STRANDED}::test_only_nodes_that_the_pods_may_use_count[a taint of the free node]",
    ),
    "what others set is taken for ours": Mutation(
        "extender/autoscaling/node_marks.py",
        "return NodeMark(Protection.FOREIGN) if has_keys else FREE",
        "return FREE",
        f"{PROTECTION}::test_a_node_on_which_somebody_else_set_a_key_is_left_alone[karpenter.sh/do-not-disrupt]",
    ),
    "an extender that is not the leader writes": Mutation(
        "extender/autoscaling/write_turn.py",
        "return self._lease.is_held and not is_paused and not self._readiness.find_unready_reason()",
        "return not is_paused and not self._readiness.find_unready_reason()",
        f"{PROTECTION}::test_only_a_leader_that_is_ready_writes[not the leader]",
    ),
    "a pod that is larger than any card gets a node": Mutation(
        "extender/autoscaling/card_shortages.py",
        "if not cards.reason.is_unresolvable:",
        "if cards.reason:",
        f"{PLACEHOLDERS}::test_for_no_other_pod_is_a_placeholder_made[of a model that no card has]",
    ),
    "a placeholder stays when a new node has an agent": Mutation(
        "extender/autoscaling/placeholders.py",
        "if self._rules.has_new_node(shortage.shape.rules, pod.created_at):",
        "if False:",
        f"{PLACEHOLDERS}::test_a_placeholder_goes_at_once_when_a_new_node_has_an_agent_and_no_other_one_follows_soon",
    ),
    "a node counts as one that an autoscaler has for the pod, whatever it lacks": Mutation(
        "extender/autoscaling/placeholders.py",
        "if state is not None and not find_node_obstacle(pod, state.node, state.pods):",
        "if state is not None:",
        f"{PLACEHOLDERS}::test_where_the_node_lacks_cpu_the_autoscaler_adds_one_by_itself",
    ),
    "a placeholder is bound": Mutation(
        "extender/scheduling/binding.py",
        "if pod.is_placeholder:",
        "if False:",
        f"{PLACEHOLDERS}::test_a_scheduler_that_asks_about_a_placeholder_gets_no_node_for_it",
    ),
}
