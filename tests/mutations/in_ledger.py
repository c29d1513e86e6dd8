"""Breaks of the ledger and of what feeds it: what is counted, what is trusted, and when nothing is."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutations.breaks import Mutation

LEDGER = "tests/extender/test_ledger.py"
NODES = "tests/extender/test_known_nodes.py"
HELD = "tests/extender/test_held_places.py"
NODE_SETS = "tests/extender/test_places_by_node_set.py"
WRITERS = "tests/extender/test_binding_writers.py"
RELOADS = "tests/extender/test_placement_change.py"
ROOM = "tests/extender/test_ledger_capacity.py"
SYNC = "tests/extender/test_sync.py"
CLIENT = "tests/kube/test_client.py"
CONNECTION = "tests/kube/test_http_client.py"
POOL = "tests/kube/test_http_pool.py"
PROXY = "tests/kube/test_http_proxy.py"
STALL = "tests/extender/test_stalled_loop.py"
CREDENTIALS = "tests/kube/test_credentials.py"
RELIST = "tests/kube/test_reflector_relist.py"
PAGER = "tests/kube/test_list_pager.py"

LEDGERS: Mapping[str, Mutation] = {
    "a second extender is not noticed": Mutation(
        "extender/state/binding_writers.py",
        "if len(self._turns) == TURNS and now - self._turns[0] <= WINDOW_SECONDS:",
        "if False:",
        f"{WRITERS}::test_two_that_bind_at_once_are_noticed_within_a_minute",
    ),
    "a node that left while rules changed stays": Mutation(
        "extender/state/placement_change.py",
        "return self._ledger.list_node_names() | self._read_names if changed is None else changed",
        "return self._ledger.list_node_names() if changed is None else changed",
        f"{RELOADS}::test_a_change_between_any_two_steps_is_in_the_result[nodes leave by the hundred]",
    ),
    "a reservation is not counted": Mutation(
        "extender/state/ledger.py",
        "self.places.put_place(reservation)",
        "pass",
        f"{LEDGER}::test_assume_holds_the_place_at_once",
    ),
    "a held place is not counted": Mutation(
        "extender/state/known_nodes.py",
        "places = self._places.list_on_node(facts.name)",
        "places = [each for each in self._places.list_on_node(facts.name) if each.state != 'held']",
        f"{HELD}::test_a_held_place_counts_as_used_for_every_other_pod_and_its_own_bind_takes_it",
    ),
    "a held place outlives its attempt": Mutation(
        "extender/state/places.py",
        "return is_nominated_elsewhere or has_lost_nomination or pod.failed_attempt != self.pod.failed_attempt",
        "return is_nominated_elsewhere or has_lost_nomination",
        f"{HELD}::test_a_hold_ends_when_its_pod_shows_that_the_attempt_is_over[another reason why it was not placed]",
    ),
    "an old event ends a hold": Mutation(
        "extender/state/places.py",
        "if not is_later_version(pod.resource_version, than=self.pod.resource_version):",
        "if False:",
        f"{HELD}::test_an_earlier_state_of_its_pod_ends_no_hold",
    ),
    "a pod is asked about again and keeps its earlier place": Mutation(
        "extender/scheduling/verbs.py",
        "self._places.begin_attempt(scheduling_request.pod, names, self._engine)",
        "pass",
        f"{HELD}::test_each_filter_of_its_pod_decides_again",
    ),
    "a pod of a group keeps no place on the other sets of nodes": Mutation(
        "extender/scheduling/named_places.py",
        "return [place for place in held if tried and self._group_fit.get_node_set(group, place.node_name) != tried]",
        "return []",
        f"{NODE_SETS}::test_each_rack_has_a_place_for_each_pod_until_one_is_chosen",
    ),
    "a bind leaves the places on the other sets of nodes": Mutation(
        "extender/scheduling/named_places.py",
        'self._ledger.release_held_places(uid, "bound", beside=kept)',
        "pass",
        f"{NODE_SETS}::test_the_first_bind_takes_the_place_of_its_rack_and_frees_the_others[a]",
    ),
    "a refused bind keeps its place": Mutation(
        "extender/state/ledger.py",
        "if known is not None and not known.is_written:",
        "if known is None:",
        f"{LEDGER}::test_forget_frees_the_reservation",
    ),
    "a pod that is leaving has left": Mutation(
        "extender/state/ledger.py",
        "if pod.is_finished or not pod.can_hold_memory:",
        "if pod.is_finished or pod.is_terminating or not pod.can_hold_memory:",
        f"{LEDGER}::test_a_terminating_pod_holds_its_memory_until_it_is_gone",
    ),
    "a finished pod holds its memory for ever": Mutation(
        "extender/state/ledger.py",
        "if pod.is_finished or not pod.can_hold_memory:",
        "if not pod.can_hold_memory:",
        f"{LEDGER}::test_a_finished_pod_holds_nothing",
    ),
    "an old event takes a binding back": Mutation(
        "extender/state/ledger.py",
        "if known is None or not pod.is_older_than(known):",
        "if True:",
        f"{LEDGER}::test_an_older_event_does_not_undo_a_look_up",
    ),
    "an old list takes back what a look-up showed": Mutation(
        "extender/state/ledger.py",
        "if pod.uid in self._fetched:",
        "if False:",
        f"{LEDGER}::test_a_list_that_began_before_a_look_up_does_not_undo_it",
    ),
    "a list takes nothing away": Mutation(
        "extender/state/ledger.py",
        "for uid in baseline.pods - listed:",
        "for uid in ():",
        f"{LEDGER}::test_a_list_releases_pods_it_does_not_contain",
    ),
    "a list leaves the places of pods that it lacks": Mutation(
        "extender/state/ledger.py",
        "for uid in baseline.placed_pods - listed:",
        "for uid in ():",
        f"{LEDGER}::test_a_list_releases_pods_it_does_not_contain",
    ),
    "a confirmed place counts beside its record": Mutation(
        "extender/state/ledger.py",
        "freed = self.places.list_places_of(pod.uid) if pod.node_name else self.places.hear_of(pod)",
        "freed = [] if pod.node_name else self.places.hear_of(pod)",
        f"{LEDGER}::test_once_bound_the_record_counts_and_not_the_reservation",
    ),
    "a pod finds free what it holds itself": Mutation(
        "extender/state/known_nodes.py",
        "if self._places.is_on_node(uid, name):",
        "if True:",
        f"{NODES}::test_units_of_a_bound_pod_are_free_for_no_other_pod",
    ),
    "the change log does not name the changed node": Mutation(
        "policies/engine/change_log.py",
        "self._changed[name] = self.generation",
        "pass",
        f"{NODES}::test_every_change_raises_the_generation_and_names_its_node",
    ),
    "half a list is trusted": Mutation(
        "extender/state/sync.py",
        "if not self._listed[resource].is_set():",
        "if not any(each.is_set() for each in self._listed.values()) or resource not in self._activity_at:",
        f"{SYNC}::test_the_ledger_is_not_trusted_before_both_lists_are_complete",
    ),
    "a ledger that hears no events is trusted": Mutation(
        "extender/state/sync.py",
        "if silence > self._stale_seconds:",
        "if False:",
        f"{SYNC}::test_the_ledger_is_stale_after_two_minutes_of_silence",
    ),
    "a ledger whose loop stood still is trusted": Mutation(
        "extender/state/sync.py",
        "if lag := self.lags[resource].describe_lag():",
        "if lag := '':",
        f"{STALL}::test_after_a_stall_verbs_wait_until_missed_events_are_read",
    ),
    "one wait is enough after a stall": Mutation(
        "vrampack/kube/watch_lag.py",
        "self._unsettled_seconds = SETTLED_SECONDS",
        "self._unsettled_seconds = 0.0",
        f"{STALL}::test_after_a_stall_verbs_wait_until_missed_events_are_read",
    ),
    "a watch that ended behind is forgotten": Mutation(
        "vrampack/kube/watch_lag.py",
        "if not self.describe_lag():",
        "if True:",
        "tests/kube/test_watch_lag.py::test_lag_is_reported_while_the_reader_is_behind[the watch ended behind]",
    ),
    "a pod that cannot be decoded is taken for gone": Mutation(
        "extender/state/sync.py",
        "self._listed.add(reference.uid)",
        "pass",
        f"{SYNC}::test_a_pod_that_can_no_longer_be_decoded_keeps_holding_its_memory",
    ),
    "a node that a list lacks stays": Mutation(
        "extender/state/sync.py",
        "for name in self._known_names - self._listed:",
        "for name in ():",
        f"{SYNC}::test_a_node_missing_from_a_list_is_removed",
    ),
    "a Binding that was written is refused": Mutation(
        "extender/state/ledger.py",
        "if known is not None and not known.is_written:",
        "if known is not None:",
        f"{LEDGER}::test_forget_keeps_a_place_whose_binding_was_written",
    ),
    "a 404 about anything means that the pod is gone": Mutation(
        "vrampack/kube/api_caller.py",
        'if error.subject != f"{resource}/{name}":',
        "if False:",
        f"{CLIENT}::test_a_pod_is_gone_only_if_the_api_server_says_so_of_this_pod",
    ),
    "a server error is a definite no": Mutation(
        "vrampack/kube/answers.py",
        "if is_too_large or HTTPStatus.BAD_REQUEST <= code < HTTPStatus.INTERNAL_SERVER_ERROR:",
        "if 400 <= code:",
        f"{CLIENT}::test_5xx_and_malformed_answers_have_an_unknown_outcome[500]",
    ),
    "a Binding is sent twice": Mutation(
        "vrampack/kube/http_connection.py",
        "self._transport.write(request)",
        "self._transport.write(request + request)",
        f"{CONNECTION}::test_a_binding_is_sent_once_and_answered[a length-at once]",
    ),
    "a Binding that was cut off counts as not sent": Mutation(
        "vrampack/kube/http_client.py",
        "request.is_sent = True",
        "pass",
        f"{CONNECTION}::test_a_binding_is_sent_once_and_answered[closed at once-at once]",
    ),
    "an answer that was cut is an answer": Mutation(
        "vrampack/kube/http_connection.py",
        "if reply.status and not self._is_framed and error is None:",
        "if reply.status:",
        f"{CONNECTION}::test_a_binding_is_sent_once_and_answered[cut in the body-at once]",
    ),
    "an answer without a request is taken for the next": Mutation(
        "vrampack/kube/http_connection.py",
        "if self._reply is None or self._reply.is_complete:",
        "if False:",
        f"{POOL}::test_some_answers_close_the_connection[the server says more]",
    ),
    "a connection is kept although an answer may still arrive": Mutation(
        "vrampack/kube/http_connection.py",
        "if not (reply.is_complete and self._is_kept_alive):",
        "if False:",
        f"{POOL}::test_an_abandoned_binding_frees_its_place_and_closes_its_connection[timed out]",
    ),
    "a Binding on a closed idle connection is sent once more": Mutation(
        "vrampack/kube/http_client.py",
        "if not is_get:",
        "if False:",
        f"{POOL}::test_only_a_get_on_a_closed_idle_connection_is_sent_once_more[a Binding]",
    ),
    "a GET whose answer was cut is sent once more": Mutation(
        "vrampack/kube/http_connection.py",
        "kind = ClosedIdleConnectionError if self._is_reused and not self._is_answered else ConnectionError",
        "kind = ClosedIdleConnectionError if self._is_reused else ConnectionError",
        f"{POOL}::test_only_a_get_on_a_closed_idle_connection_is_sent_once_more[a GET, closed within the answer]",
    ),
    "the proxy is bypassed": Mutation(
        "vrampack/kube/http_route.py",
        "if not configuration.proxy:",
        "if True:",
        f"{PROXY}::test_requests_to_an_http_server_are_sent_to_the_proxy",
    ),
    "a tunnel that was refused is used": Mutation(
        "vrampack/kube/http_connection.py",
        "if not HTTPStatus.OK <= reply.status < HTTPStatus.MULTIPLE_CHOICES:",
        "if False:",
        f"{PROXY}::test_a_tunnel_that_does_not_open_counts_as_unanswered[credentials missing]",
    ),
    "a Binding is for any pod of that name": Mutation(
        "vrampack/kube/client.py",
        'metadata: dict[str, object] = {"name": name, "namespace": namespace, "uid": uid}',
        'metadata: dict[str, object] = {"name": name, "namespace": namespace}',
        f"{CLIENT}::test_a_pod_of_another_uid_is_refused_and_nothing_is_written",
    ),
    "a page that was cut is taken for a whole one": Mutation(
        "vrampack/kube/list_pager.py",
        "if len(body) < max_bytes:",
        "if True:",
        f"{PAGER}::test_the_limit_follows_the_size_of_the_objects[the largest pods]",
    ),
    "a pod that was looked up leaves its uid": Mutation(
        "extender/state/ledger.py",
        "self._fetched.discard(uid)",
        "pass",
        f"{LEDGER}::test_nothing_is_kept_of_a_pod_that_was_looked_up_and_is_gone",
    ),
}
