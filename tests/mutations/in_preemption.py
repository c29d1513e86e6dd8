"""Breaks of preemption by card: the planner, the card that is kept, the Lease, and the protected pods."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutations.breaks import Mutation

PREEMPTOR = "tests/extender/test_card_preemptor.py"
LEASE = "tests/kube/test_leader_lease.py"
PLANNER_FILE = "extender/card_preemption/card_planner.py"
PREEMPTOR_FILE = "extender/card_preemption/card_preemptor.py"

PREEMPTIONS: Mapping[str, Mutation] = {
    "pods are evicted for a pod that may not preempt": Mutation(
        PLANNER_FILE,
        'if pod.spec.preemption_policy == "Never":',
        "if False:",
        f"{PREEMPTOR}::test_no_pod_is_evicted_for_a_pod[that may not preempt]",
    ),
    "a static pod is evicted": Mutation(
        PLANNER_FILE,
        "pod.is_static",
        "False",
        f"{PREEMPTOR}::test_a_protected_pod_is_spared[static]",
    ),
    "the node is not read again": Mutation(
        PLANNER_FILE,
        "if obstacle := find_node_obstacle(asking, state.node, staying):",
        "if obstacle := str():",
        f"{PREEMPTOR}::test_a_node_that_was_cordoned_since_the_call_is_left_out",
    ),
    "a Lease that another process holds is taken": Mutation(
        "vrampack/kube/leader_lease.py",
        "if not holder or holder == self._identity:",
        "if True:",
        f"{LEASE}::test_the_first_process_takes_a_free_lease_and_the_second_does_not",
    ),
    "the API server is not asked about the victims first": Mutation(
        PREEMPTOR_FILE,
        "for victim in plan.victims:",
        "for victim in plan.victims[:0]:",
        f"{PREEMPTOR}::test_of_two_victims_none_goes_if_one_is_protected",
    ),
    "a pod for which others were evicted in vain begins again": Mutation(
        PREEMPTOR_FILE,
        "self._attempts[pod.uid] = PlanAttempt(next_at=now + IN_VAIN_PAUSE_SECONDS)",
        "self._attempts[pod.uid] = PlanAttempt()",
        f"{PREEMPTOR}::test_for_a_pod_that_was_not_bound_no_pod_is_evicted_again_soon",
    ),
    "a card is forgotten with the scheduler's nomination": Mutation(
        "vrampack/cards/pod.py",
        "return self.nominated_node or self.preemption_node",
        "return self.nominated_node",
        f"{PREEMPTOR}::test_every_extender_keeps_the_card_even_if_the_scheduler_ends_the_nomination",
    ),
    "a silent holder goes on to act": Mutation(
        "vrampack/kube/leader_lease.py",
        "self._held_until = started + RENEW_DEADLINE_SECONDS",
        "self._held_until = started + 2 * RENEW_DEADLINE_SECONDS",
        f"{LEASE}::test_a_silent_holder_stops_to_act_before_another_begins",
    ),
}
