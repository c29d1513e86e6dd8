"""Every fault that the design names is tried by a test that exists, or stands here with the reason why not yet."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

TRIED = {
    "F1 killed before the Binding leaves": ("e2e/kills.py::before_the_post_leaves",),
    "F2 killed after the Binding was written": (
        "e2e/kills.py::after_the_write",
        "e2e/kills.py::before_the_scheduler_hears",
    ),
    "F2 killed while it rebuilds its ledger, or at any bind": (
        "e2e/kills.py::during_the_rebuild",
        "e2e/kills.py::at_some_bind",
    ),
    "F3 reply lost after the write": (
        "e2e/test_bind_rows.py::test_a_lost_reply_is_looked_up",
        "e2e/test_late_answers.py::test_whatever_happens_to_bindings_every_pod_is_bound_once",
    ),
    "F4 the scheduler gives up first": (
        "e2e/test_late_answers.py::test_a_bind_that_ends_after_the_scheduler_gave_up_is_done_once",
        "e2e/test_late_answers.py::test_a_bind_that_the_extender_reads_too_late_does_no_harm",
        "e2e/test_bind_rows.py::test_no_binding_is_sent_after_the_deadline",
    ),
    "F5 bound elsewhere already": (
        "e2e/test_bind_rows.py::test_a_pod_that_is_bound_to_another_node_is_refused",
        "e2e/test_bind_rows.py::test_a_pod_that_somebody_else_bound_is_a_conflict",
    ),
    "F6 another pod of the same name": (
        "e2e/test_bind_rows.py::test_a_recreated_pod_is_not_bound_by_the_call_for_its_predecessor",
    ),
    "F6 pod deleted during its bind": (
        "e2e/test_deleted_meanwhile.py::test_a_pod_deleted_during_its_bind_is_bound_nowhere_and_holds_nothing",
        "e2e/test_deleted_meanwhile.py::test_a_pod_deleted_before_its_bind_is_answered_leaves_its_place",
    ),
    "F7 watch cut": ("e2e/test_watch_faults.py::test_a_watch_that_is_cut_goes_on_with_what_it_missed",),
    "F7 watch silent": (
        "e2e/test_watch_faults.py::test_a_stale_extender_refuses_rather_than_guess",
        "e2e/soak_silence.py::test_a_half_open_line_is_given_up_and_nothing_is_missed",
    ),
    "F8 410 on watch and list": ("e2e/test_watch_faults.py::test_after_410_everything_is_listed_anew",),
    "F9 API server down": (
        "e2e/test_outages.py::test_an_api_server_that_is_away_costs_nothing_but_time",
        "e2e/test_outages.py::test_an_extender_that_starts_before_the_api_server_waits_for_it",
    ),
    "F10 429, 5xx and slow, on Bindings": (
        "e2e/test_bind_rows.py::test_a_throttled_binding_is_a_definite_no",
        "e2e/test_bind_rows.py::test_after_a_server_error_another_node_is_held_as_well",
        "e2e/test_bind_rows.py::test_a_time_out_that_nothing_explains_is_unknown_until_the_watch_speaks",
        "e2e/test_late_answers.py::test_whatever_happens_to_bindings_every_pod_is_bound_once",
    ),
    "F10 429, 5xx and slow, on lists": (
        "e2e/test_watch_faults.py::refused_lists",
        "e2e/test_watch_faults.py::slow_lists",
        "kube/test_reflector.py::test_what_fails_again_and_again_is_tried_ever_more_rarely",
    ),
    "F11 etcd hangs, etcd dies": (
        "e2e/test_outages.py::test_a_store_that_hangs_keeps_places_until_it_has_spoken",
        "e2e/test_outages.py::test_a_store_that_dies_and_comes_back_is_followed_again",
    ),
    "F12 restored from a backup": (
        "e2e/soak_silence.py::test_a_cluster_restored_from_a_backup_is_listed_anew",
        "kube/test_reflector.py::test_an_api_server_restored_from_a_backup_is_listed_anew",
    ),
    "F13 wrong clock": ("e2e/test_wrong_clock.py::test_a_wrong_clock_changes_no_placement",),
    "F14 two extenders called": (
        "e2e/test_two_extenders.py::test_a_card_that_both_sold_is_flagged_and_gets_no_further_pod",
        "e2e/test_two_extenders.py::test_of_sixty_four_binds_at_once_each_is_answered_truly",
    ),
    "F15 a paused leader goes on": ("e2e/test_leader_change.py::paused_while_binding",),
    "F16 leader change during a bind": ("e2e/test_leader_change.py::killed_while_binding",),
    "F17 stopped in order under load": ("e2e/kills.py::in_order", "e2e/test_leader_change.py::stopped_in_order"),
    "F18 node deleted, and back with other cards": (
        "e2e/test_deleted_meanwhile.py::test_a_node_deleted_during_a_bind_takes_the_place_with_it",
        "e2e/test_deleted_meanwhile.py::test_a_node_that_comes_back_with_other_cards_gives_no_room_that_its_pods_may_have",
    ),
    "F24 forged records, pods past the extender": (
        "e2e/test_admission_records.py::test_no_record_is_forged_on_any_of_the_four_ways",
        "e2e/test_bind_rows.py::test_a_pod_that_somebody_else_bound_is_a_conflict",
    ),
    "F25 no way between scheduler and extender": (
        "e2e/test_late_answers.py::test_the_scheduler_gets_on_without_the_extender_but_for_its_pods",
    ),
    "F28 a gang filtered before its first bind": (
        "e2e/test_promises.py::test_a_gang_gets_as_many_cards_as_members",
        "extender/test_promises.py::test_eight_members_of_a_gang_get_eight_places",
    ),
    "F29 a thousand pods without a place": ("benchmarks/test_scheduler_benchmarks.py::test_a_group_yields_its_rows",),
    "F30 pods that take long to leave": (
        "extender/test_ledger.py::test_a_terminating_pod_holds_its_memory_until_it_is_gone",
    ),
}

NOT_TRIED = {
    "F19 a card fails": "needs the agent; what its annotation says of a card is in extender/test_ledger.py",
    "F20 kubelet restarts": "needs the agent",
    "F21 agent killed": "needs the agent",
    "F22 node reboots": "needs the agent",
    "F23 kubelet allocates in another order": "needs the agent",
    "F26 memory limit, slow disk": "wants a cgroup of its own; a process that hangs is F4",
    "F27 certificates rotated": "certificates are read at the start; expired ones are in extender/test_server_tls.py",
}


def rows() -> set[int]:
    return {int(fault.split()[0].removeprefix("F")) for fault in (*TRIED, *NOT_TRIED)}


def test_every_row_of_the_matrix_is_here() -> None:
    assert rows() == set(range(1, 31))


@pytest.mark.parametrize("where", sorted({where for places in TRIED.values() for where in places}))
def test_what_tries_a_fault_exists(where: str) -> None:
    file, _, name = where.partition("::")
    tree = ast.parse((TESTS / file).read_text())

    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
