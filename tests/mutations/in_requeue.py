"""Breaks that affect waiting pods: places kept for nominated pods, and kicks."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutations.breaks import Mutation

EVICTOR = "tests/extender/test_refused_pod_evictor.py"
NOMINATIONS = "tests/extender/test_nominator.py"
KICKS = "tests/extender/test_activator.py"

WAITING: Mapping[str, Mutation] = {
    "a pod that the watch has not shown has priority 0": Mutation(
        "extender/state/nominator.py",
        "if pod is None and self._caller is not None and self._caller.uid == uid:",
        "if False:",
        f"{NOMINATIONS}::test_a_pod_not_yet_in_our_watch_has_its_own_priority[10-11-passed2]",
    ),
    "a pod of equal priority takes the card of a nominated one": Mutation(
        "extender/state/nominator.py",
        "position = bisect_left(self._floors, self._get_priority(uid))",
        "position = bisect_left(self._floors, self._get_priority(uid) + 1)",
        f"{NOMINATIONS}::test_a_nominees_card_is_kept_from_lower_and_equal_priority_only",
    ),
    "a nominated pod locks itself out": Mutation(
        "extender/state/nominator.py",
        "return [each for each in kept.placements if each.pod.uid != uid and each.pod.priority >= least]",
        "return [each for each in kept.placements if each.pod.priority >= least]",
        f"{NOMINATIONS}::test_a_nominees_card_is_kept_from_lower_and_equal_priority_only",
    ),
    "of two nominated pods the less important one has the card": Mutation(
        "extender/state/nominator.py",
        "return sorted([*nominees, *more], key=lambda pod: (-pod.priority, pod.created_at, pod.uid))",
        "return sorted([*nominees, *more], key=lambda pod: (pod.priority, pod.created_at, pod.uid))",
        f"{NOMINATIONS}::test_the_more_important_of_two_nominees_keeps_the_card",
    ),
    "a nomination that ends wakes no pod": Mutation(
        "extender/state/ledger.py",
        "self.release_nominated_capacity(before)",
        "pass",
        f"{NOMINATIONS}::test_the_end_of_a_nomination_wakes_waiting_pods",
    ),
    "a standby kicks": Mutation(
        "extender/requeue/activator.py",
        "return self._filter_called_at is not None and now - self._filter_called_at <= SCHEDULER_SILENT_SECONDS",
        "return True",
        f"{KICKS}::test_an_extender_that_no_scheduler_calls_activates_no_pod",
    ),
    "a ledger that is not to be trusted kicks": Mutation(
        "extender/requeue/activator.py",
        "if self._readiness.find_unready_reason():",
        "if False:",
        f"{KICKS}::test_a_stale_ledger_activates_no_pod",
    ),
    "a node that the scheduler leaves out is offered again at once": Mutation(
        "extender/requeue/activator.py",
        'self._end_activation(uid, "refused", backs_off=activation.placement.node_name not in names)',
        'self._end_activation(uid, "refused")',
        f"{KICKS}::test_a_node_that_the_scheduler_leaves_out_is_not_offered_again_for_a_while",
    ),
    "a pod that saw the room is woken for it": Mutation(
        "extender/requeue/activator.py",
        "self._unschedulable_pods.reject_pod(uid, self._ledger.capacity_generation, now)",
        "self._unschedulable_pods.reject_pod(uid, 0, now)",
        f"{KICKS}::test_a_pod_rejected_after_the_room_appeared_is_not_activated",
    ),
    "the least important pod is woken first": Mutation(
        "extender/requeue/activator.py",
        "-pod.priority,",
        "pod.priority,",
        f"{KICKS}::test_pods_that_fit_together_are_woken_by_priority_then_age_then_uid",
    ),
    "two pods are woken for one place": Mutation(
        "extender/requeue/activator.py",
        "return activated + nominated",
        "return nominated",
        f"{KICKS}::test_the_place_of_an_activated_pod_is_kept_for_it",
    ),
    "a pod that is never bound keeps its place for itself": Mutation(
        "extender/requeue/activator.py",
        "elif now >= activation.expires_at:",
        "elif False:",
        f"{KICKS}::test_an_unused_place_is_offered_to_the_next_pod_after_five_seconds",
    ),
    "any number of pods is woken at once": Mutation(
        "extender/requeue/activator.py",
        "if len(chosen) >= max_chosen:",
        "if False:",
        f"{KICKS}::test_at_most_a_hundred_activations_are_pending_at_a_time",
    ),
    "an activation that the API server fails to take is held against the node": Mutation(
        "extender/requeue/activator.py",
        'self._end_activation(pod.uid, "gone" if is_gone else "failed", backs_off=is_refused)',
        'self._end_activation(pod.uid, "gone" if is_gone else "failed", backs_off=True)',
        "tests/extender/test_activator.py::test_an_activation_that_fails_at_the_api_server_is_retried_within_seconds",
    ),
    "gated pods are activated": Mutation(
        "extender/requeue/unschedulable_pods.py",
        "return pod.request is not None and not (pod.node_name or pod.is_terminating or pod.is_finished or pod.is_gated)",
        "return pod.request is not None and not (pod.node_name or pod.is_terminating or pod.is_finished)",
        "tests/extender/test_activator_after_restart.py::test_pods_that_no_scheduler_tries_do_not_block_others[gated-10]",
    ),
    "pods of schedulers that never called are activated": Mutation(
        "extender/requeue/activator.py",
        "if pod.scheduler_name not in self._schedulers or now < rejection.retry_at:",
        "if now < rejection.retry_at:",
        "tests/extender/test_activator_after_restart.py::test_pods_of_a_scheduler_that_calls_later_are_activated_then",
    ),
    "a node's word reaches pods of other nodes": Mutation(
        "extender/eviction/refused_pod_evictor.py",
        "if pod is None or pod.node_name != refusal.node_name or not pod.can_hold_memory:",
        "if pod is None:",
        f"{EVICTOR}::test_a_node_can_report_only_its_own_pods[a pod of another node]",
    ),
    "a leaving pod is evicted again and again": Mutation(
        "extender/eviction/refused_pod_evictor.py",
        "attempt.next_at = math.inf  # the pod may take a while to end",
        "pass",
        f"{EVICTOR}::test_an_evicted_pod_is_not_evicted_again_while_it_terminates",
    ),
    "an eviction that always fails is told nowhere": Mutation(
        "extender/eviction/refused_pod_evictor.py",
        'if attempt.is_told or (result == "failed" and attempt.failures < FAILURES_BEFORE_EVENT):',
        'if attempt.is_told or result == "failed":',
        f"{EVICTOR}::test_a_persistently_failing_api_server_is_reported_once",
    ),
    "a bare pod is evicted": Mutation(
        "extender/eviction/refused_pod_evictor.py",
        "if not seen.is_controlled or seen.is_static:",
        "if False:",
        f"{EVICTOR}::test_a_pod_that_no_controller_recreates_is_kept_and_gets_one_event[bare]",
    ),
}
