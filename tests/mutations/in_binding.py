"""Breaks of a bind, from the call to the state in the API server."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutations.breaks import Mutation

BINDING = "tests/extender/test_binding.py"
FENCE = "tests/extender/test_binding_fence.py"

BINDINGS: Mapping[str, Mutation] = {
    "no answer frees the place": Mutation(
        "extender/scheduling/binding.py",
        "if pod.request is not None and seen.resource_version != pod.resource_version:",
        "if pod.request is not None:",
        f"{FENCE}::test_an_unanswered_binding_is_fenced",
    ),
    "no answer is a success": Mutation(
        "extender/scheduling/binding.py",
        'return BindOutcome("api_error", f"{OUTCOME_UNKNOWN}: pod {pod}: {silence}; not bound yet, its place is kept")',
        "return BOUND_OUTCOME",
        f"{FENCE}::test_an_unanswered_binding_is_fenced",
    ),
    "a lost reply is not looked up": Mutation(
        "extender/scheduling/binding.py",
        "return await self._resolve_no_answer(pod, node_name, error, deadline)",
        'return BindOutcome("api_error", f"{OUTCOME_UNKNOWN}: pod {pod}: {error}")',
        f"{BINDING}::test_a_bind_whose_reply_is_lost_looks_the_pod_up",
    ),
    "a definite no keeps the place": Mutation(
        "extender/scheduling/binding.py",
        "if outcome.error and held is not None and not held.is_unconfirmed:",
        "if False:",
        f"{BINDING}::test_a_refused_binding_gives_its_place_back",
    ),
    "a refused second try says that nothing was bound": Mutation(
        "extender/scheduling/binding.py",
        "if held is not None and held.is_unconfirmed:",
        "if False:",
        f"{FENCE}::test_a_refused_retry_keeps_the_place_of_the_first_try",
    ),
    "nothing is reserved before the Binding is sent": Mutation(
        "extender/scheduling/binding.py",
        "self._ledger.assume(pod, node.name, allocation)",
        "pass",
        f"{BINDING}::test_eight_binds_at_once_never_share_the_last_place",
    ),
    "a conflict is a success": Mutation(
        "extender/scheduling/binding.py",
        "return await self._resolve_conflict(pod, node_name, error, deadline)",
        "return BOUND_OUTCOME",
        f"{FENCE}::test_a_pod_that_changed_unseen_is_bound_with_one_get_and_one_more_post",
    ),
    "bound to any node is bound to this one": Mutation(
        "extender/scheduling/bind_outcome.py",
        "if pod.node_name == node_name and is_by_us:",
        "if is_by_us:",
        f"{BINDING}::test_a_conflict_over_another_node_is_refused_and_holds_nothing_here",
    ),
    "a bind that is asked for twice is a no": Mutation(
        "extender/scheduling/bind_outcome.py",
        "if pod.node_name == node_name and is_by_us:",
        "if False:",
        f"{BINDING}::test_a_second_bind_of_a_bound_pod_sends_nothing",
    ),
    "bound by anybody is bound with our record": Mutation(
        "extender/scheduling/bind_outcome.py",
        "is_by_us = pod.request is None or (isinstance(pod.record, Record) and pod.record.is_ours)",
        "is_by_us = True",
        f"{BINDING}::test_a_bind_fails_for_a_pod_bound_to_this_node_by_another_scheduler",
    ),
    "the uid of the call is not compared with the pod's": Mutation(
        "extender/scheduling/binding.py",
        "if seen.uid != args.pod_uid:",
        "if False:",
        f"{BINDING}::test_a_recreated_pod_is_not_bound_by_the_call_for_its_predecessor[seen]",
    ),
    "the name of the call is not compared with the pod's": Mutation(
        "extender/scheduling/binding.py",
        "if pod is None or (pod.namespace, pod.name) != (args.pod_namespace, args.pod_name):",
        "if pod is None:",
        f"{BINDING}::test_a_call_that_names_the_uid_of_another_pod_binds_neither",
    ),
    "every call sends a Binding of its own": Mutation(
        "extender/scheduling/binding.py",
        "task = self._binds_in_flight.get(args)",
        "task = None",
        f"{BINDING}::test_overlapping_binds_of_one_pod_to_one_node_send_one_binding[0]",
    ),
    "a caller that hangs up takes the Binding with it": Mutation(
        "extender/scheduling/binding.py",
        "outcome = await asyncio.shield(task)",
        "outcome = await task",
        f"{BINDING}::test_a_caller_that_hangs_up_does_not_stop_the_bind",
    ),
    "a pod that is being deleted is bound": Mutation(
        "extender/scheduling/binding.py",
        "if pod.is_terminating or pod.is_finished:",
        "if False:",
        f"{BINDING}::test_a_pod_that_is_being_deleted_is_not_bound",
    ),
    "a Binding is sent after the deadline": Mutation(
        "extender/scheduling/binding.py",
        'return BindOutcome("deadline", text)',
        "remaining = 1.0",
        f"{BINDING}::test_no_binding_is_sent_after_the_deadline",
    ),
    "an old answer brings a pod back that is gone": Mutation(
        "extender/state/pod_client.py",
        "if seen.uid == pod.uid and self._ledger.get_pod(pod.uid) is not None:",
        "if seen.uid == pod.uid:",
        f"{FENCE}::test_a_look_up_overtaken_by_the_watch_revives_no_deleted_pod",
    ),
    "a second try writes a record of cards that are gone": Mutation(
        "extender/scheduling/binding.py",
        "if is_here and reservation.may_land_on(pod) and node is not None and _has_cards(node, reservation.allocation):",
        "if is_here and reservation.may_land_on(pod) and node is not None:",
        f"{FENCE}::test_a_retry_after_the_cards_were_replaced_takes_a_new_card",
    ),
    "a second try keeps the cards of a Binding for another version of the pod": Mutation(
        "extender/scheduling/binding.py",
        "if is_here and reservation.may_land_on(pod) and node is not None and _has_cards(node, reservation.allocation):",
        "if is_here and not reservation.is_written and node is not None and _has_cards(node, reservation.allocation):",
        f"{FENCE}::test_a_retry_for_a_pod_that_changed_meanwhile_decides_again",
    ),
    "a second try writes a share of units that the card no longer has": Mutation(
        "extender/scheduling/binding.py",
        "(share.units == units if share.whole else share.units <= units) and share.card_units in (None, units)",
        "(share.units == units if share.whole else share.units <= units)",
        f"{FENCE}::test_a_retry_after_the_units_changed_writes_a_share_of_the_new_units",
    ),
    "a Binding is for any version of the pod": Mutation(
        "extender/scheduling/binding.py",
        'version = pod.resource_version if pod.request is not None else ""',
        'version = ""',
        f"{FENCE}::test_a_pod_that_changed_unseen_is_bound_with_one_get_and_one_more_post",
    ),
    "a pod that was relabelled keeps its cards": Mutation(
        "extender/scheduling/binding.py",
        "if earlier is not None and earlier.is_unconfirmed:",
        "if earlier is not None:",
        "tests/extender/test_rules.py::test_a_pod_relabelled_before_its_binding_is_bound_by_its_new_label",
    ),
    "a pod that the watch has not shown is bound with priority 0": Mutation(
        "extender/scheduling/binding.py",
        "self._nominator.note_caller(pod)",
        "pass",
        "tests/extender/test_nominator.py::test_a_pod_not_yet_in_our_watch_has_its_own_priority",
    ),
    "a conflict is always definite": Mutation(
        "extender/scheduling/binding.py",
        "if seen.resource_version != pod.resource_version:",
        "if True:",
        f"{FENCE}::test_a_409_for_an_unchanged_pod_keeps_the_reservation",
    ),
    "a look-up frees a place without a new version": Mutation(
        "extender/scheduling/binding_fence.py",
        "if seen is not None and not seen.node_name and reservation.may_land_on(seen):",
        "if False:",
        f"{FENCE}::test_the_place_is_kept_while_the_api_server_accepts_no_writes",
    ),
    "an event of the Binding's own version frees the place": Mutation(
        "extender/state/places.py",
        "and is_later_version(pod.resource_version, than=self.binding_version)",
        "and True",
        f"{FENCE}::test_a_watch_event_with_a_new_pod_version_fences_the_binding",
    ),
    "a Binding that was written is not remembered": Mutation(
        "extender/scheduling/binding.py",
        "self._ledger.mark_written(pod.uid, node_name)",
        "pass",
        f"{BINDING}::test_a_second_bind_of_a_bound_pod_sends_nothing",
    ),
    "what etcd finds too large may have been written": Mutation(
        "vrampack/kube/answers.py",
        "if is_too_large or HTTPStatus.BAD_REQUEST <= code < HTTPStatus.INTERNAL_SERVER_ERROR:",
        "if HTTPStatus.BAD_REQUEST <= code < HTTPStatus.INTERNAL_SERVER_ERROR:",
        f"{FENCE}::test_a_pod_that_etcd_finds_too_large_holds_nothing",
    ),
    "a container is bound that will see no card": Mutation(
        "extender/scheduling/binding.py",
        "if node.needs_references and not pod_request.has_references:",
        "if False:",
        f"{BINDING}::test_a_pod_that_admission_did_not_wire_is_refused_where_it_would_see_no_card",
    ),
    "an unconfirmed place is never looked up": Mutation(
        "extender/scheduling/binding_fence.py",
        "if now >= due and key not in excluded:",
        "if False:",
        f"{FENCE}::test_an_unconfirmed_place_of_a_pod_that_vanished_unseen_is_freed",
    ),
}
