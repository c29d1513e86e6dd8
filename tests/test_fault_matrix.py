"""Every fault that the design names is tried by a test that exists, or stands here with the reason why not yet."""

import ast
from pathlib import Path

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
        "e2e/test_bind_rows.py::test_lost_binding_reply_is_resolved_by_reading_the_pod",
        "e2e/test_late_answers.py::test_every_pod_is_bound_once_despite_every_kind_of_binding_fault",
    ),
    "F4 the scheduler gives up first": (
        "e2e/test_late_answers.py::test_a_bind_that_ends_after_the_scheduler_gave_up_is_done_once",
        "e2e/test_late_answers.py::test_a_bind_that_the_extender_reads_too_late_does_no_harm",
        "e2e/test_bind_rows.py::test_no_binding_is_sent_after_the_deadline",
    ),
    "F5 bound elsewhere already": (
        "e2e/test_bind_rows.py::test_a_pod_that_is_bound_to_another_node_is_refused",
        "e2e/test_bind_rows.py::test_a_pod_bound_by_another_scheduler_is_a_conflict",
    ),
    "F6 another pod of the same name": (
        "e2e/test_bind_rows.py::test_a_recreated_pod_is_not_bound_by_the_call_for_its_predecessor",
    ),
    "F6 pod deleted during its bind": (
        "e2e/test_deleted_meanwhile.py::test_a_pod_deleted_during_its_bind_is_bound_nowhere_and_holds_nothing",
        "e2e/test_deleted_meanwhile.py::test_pod_deleted_before_its_bind_is_answered_frees_its_place",
    ),
    "F7 watch cut": ("e2e/test_watch_faults.py::test_cut_watch_resumes_with_the_events_it_missed",),
    "F7 watch silent": (
        "e2e/test_watch_faults.py::test_a_stale_extender_refuses_rather_than_guess",
        "e2e/soak_silence.py::test_half_open_connection_is_given_up_and_nothing_is_missed",
    ),
    "F8 410 on watch and list": ("e2e/test_watch_faults.py::test_after_410_everything_is_listed_again",),
    "F9 API server down": (
        "e2e/test_outages.py::test_extender_survives_an_api_server_outage_and_binds_again_afterwards",
        "e2e/test_outages.py::test_an_extender_that_starts_before_the_api_server_waits_for_it",
    ),
    "F10 429, 5xx and slow, on Bindings": (
        "e2e/test_bind_rows.py::test_a_throttled_binding_is_a_definite_no",
        "e2e/test_bind_rows.py::test_a_pod_whose_binds_fail_has_one_reservation",
        "e2e/test_bind_rows.py::test_timed_out_bind_stays_unknown_until_the_watch_shows_the_outcome",
        "e2e/test_late_answers.py::test_every_pod_is_bound_once_despite_every_kind_of_binding_fault",
    ),
    "F10 429, 5xx and slow, on lists": (
        "e2e/test_watch_faults.py::refused_lists",
        "e2e/test_watch_faults.py::slow_lists",
        "kube/test_reflector.py::test_repeated_failures_are_retried_with_growing_pauses",
    ),
    "F10 429, 5xx and errors, on watches": (
        "kube/test_reflector_relist.py::test_a_watch_that_ends_with_an_error_causes_a_new_list",
        "kube/test_reflector_relist.py::test_a_throttled_watch_does_not_cause_a_new_list",
    ),
    "F11 etcd hangs, etcd dies": (
        "e2e/test_outages.py::test_a_hanging_etcd_keeps_reservations_until_it_answers",
        "e2e/test_outages.py::test_extender_follows_the_cluster_again_after_etcd_died_and_restarted",
    ),
    "F12 restored from a backup": (
        "e2e/soak_silence.py::test_a_cluster_restored_from_a_backup_is_listed_again",
        "kube/test_reflector.py::test_an_api_server_restored_from_a_backup_is_listed_again",
    ),
    "F13 wrong clock": ("e2e/test_wrong_clock.py::test_a_wrong_clock_changes_no_placement",),
    "F14 two extenders called": (
        "e2e/test_two_extenders.py::test_a_card_that_both_sold_is_flagged_and_gets_no_further_pod",
        "e2e/test_two_extenders.py::test_sixty_four_simultaneous_binds_are_answered_correctly",
    ),
    "F15 a paused leader goes on": ("e2e/test_leader_change.py::paused_while_binding",),
    "F15 a process that stood still is behind": (
        "extender/test_stalled_loop.py::test_after_a_stall_verbs_wait_until_missed_events_are_read",
    ),
    "F15 its late bind is fenced by the agent": (
        "agent/test_fence_forced.py::test_the_second_of_two_pods_for_the_same_memory_is_refused_and_listed",
        "agent/test_fence_forced.py::test_of_two_simultaneous_starts_for_the_same_memory_one_succeeds",
    ),
    "F16 leader change during a bind": ("e2e/test_leader_change.py::killed_while_binding",),
    "F17 stopped in order under load": ("e2e/kills.py::in_order", "e2e/test_leader_change.py::stopped_in_order"),
    "F18 node deleted, and back with other cards": (
        "e2e/test_deleted_meanwhile.py::test_pod_bound_to_a_deleted_node_counts_again_when_the_node_returns",
        "e2e/test_deleted_meanwhile.py::test_old_pod_counts_on_every_card_of_a_node_that_returns_with_other_cards",
    ),
    "F19 a card fails": (
        "agent/test_discovery.py::test_a_card_that_fails_its_checks_affects_no_other",
        "agent/test_discovery.py::test_xid_makes_its_cards_unhealthy_at_once",
    ),
    "F19 a card vanishes, cards are partitioned again": (
        "agent/test_discovery.py::test_a_vanished_gpu_keeps_its_units",
        "agent/test_discovery.py::test_repartitioning_drops_instances_that_no_pod_holds",
        "agent/test_missing_cards.py::test_a_card_that_is_gone_goes_to_no_container",
        "agent/test_fence_restarts.py::test_admitted_pod_may_restart_when_its_card_has_fewer_units_than_it_was_given",
    ),
    "F20 kubelet restarts": (
        "agent/test_fence_kills.py::test_fence_is_unchanged_and_checks_starts_after_a_kubelet_restart",
        "agent/test_fence_kills.py::test_a_container_that_started_without_prestart_is_counted",
    ),
    "F21 agent killed": (
        "agent/test_fence_kills.py::test_pod_fails_and_the_next_one_works_after_a_kill_during_allocate",
        "agent/test_fence_kills.py::test_next_agent_checks_a_start_after_a_kill_between_allocate_and_prestart",
        "agent/test_fence_kills.py::test_nothing_runs_or_is_held_if_the_agent_dies_before_its_approval_arrives",
        "agent/test_fence_kills.py::test_next_agent_counts_an_approved_container_once_kubelet_reports_it",
    ),
    "F22 node reboots": (
        "agent/test_fence_kills.py::test_every_start_is_checked_after_a_reboot_without_another_allocate",
    ),
    "F23 kubelet allocates in another order": (
        "agent/test_fence_allocation_order.py::test_shuffled_allocations_swap_no_two_cards",
    ),
    "F24 forged records on the node": (
        "agent/test_fence_foreign_pods.py::test_forged_record_is_refused_with_the_reason",
        "agent/test_fence_foreign_pods.py::test_a_pod_without_a_record_is_refused",
    ),
    "F24 forged records, pods past the extender": (
        "e2e/test_admission_records.py::test_record_cannot_be_forged_through_any_of_the_four_write_paths",
        "e2e/test_bind_rows.py::test_a_pod_bound_by_another_scheduler_is_a_conflict",
    ),
    "F25 no way between scheduler and extender": (
        "e2e/test_late_answers.py::test_without_the_extender_the_scheduler_binds_all_other_pods",
    ),
    "F28 a gang filtered before its first bind": (
        "e2e/test_soft_reservations.py::test_a_gang_gets_as_many_cards_as_members",
        "extender/test_soft_reservations.py::test_eight_members_of_a_gang_get_eight_places",
        "extender/test_group_fit.py::test_it_is_refused_only_where_too_few_find_cards",
        "e2e/test_groups.py::test_of_two_groups_that_do_not_both_fit_one_starts_whole_and_then_the_other",
    ),
    "F29 a thousand pods without a place": ("benchmarks/test_scheduler_benchmarks.py::test_a_group_yields_its_rows",),
    "F30 pods that take long to leave": (
        "extender/test_ledger.py::test_a_terminating_pod_holds_its_memory_until_it_is_gone",
    ),
}

NOT_TRIED = {
    "F26 memory limit, slow disk": "wants a cgroup of its own; a process that hangs is F4",
    "F27 certificates rotated": "certificates are read at the start; expired ones are in extender/test_server_tls.py",
}


DEVICE_PLUGIN = {
    "DP-1 a list that kubelet cannot take": (
        "agent/test_device_ids.py::test_a_list_that_kubelet_cannot_take_is_refused",
        "agent/test_device_ids.py::test_the_suggested_unit_makes_a_list_that_kubelet_accepts",
    ),
    "DP-2 device ids": (
        "agent/test_device_ids.py::test_ids_name_their_card_and_are_short",
        "agent/test_device_ids.py::test_ids_are_the_same_after_every_start",
    ),
    "DP-3 registered again after kubelet's restart": (
        "agent/test_fence_kills.py::test_fence_is_unchanged_and_checks_starts_after_a_kubelet_restart",
    ),
    "DP-4 the gap of a restart": (
        "agent/test_fence_kills.py::test_a_restarted_agent_counts_running_pods_without_disturbing_them",
    ),
    "DP-5 Allocate gives no made-up card": (
        "agent/test_device_plugin.py::test_allocate_names_no_card_and_refuses_foreign_ids",
    ),
    "DP-6 no card is exceeded, at PreStart": (
        "agent/test_fence_forced.py::test_the_second_of_two_pods_for_the_same_memory_is_refused_and_listed",
        "agent/test_fence_restarts.py::test_a_pod_of_two_cards_is_refused_where_one_of_them_is_full",
    ),
    "DP-7 one card fails, and heals": (
        "agent/test_discovery.py::test_a_card_that_fails_its_checks_affects_no_other",
        "agent/test_device_ids.py::test_one_unhealthy_card_leaves_the_others_as_they_are",
    ),
    "DP-8 the environment, by references to annotations": (
        "agent/test_containers.py::test_two_pods_share_a_card_and_each_gets_its_own_limit",
        "agent/test_device_plugin.py::test_the_environment_of_the_pod_beats_that_of_the_plugin_and_of_the_image",
    ),
    "DP-9 rebuilt from pod-resources and the API server": (
        "agent/test_fence_kills.py::test_a_restarted_agent_counts_running_pods_without_disturbing_them",
        "agent/test_fence_kills.py::test_an_agent_that_starts_before_the_api_server_waits_for_it",
        "agent/test_fence_foreign_pods.py::test_a_running_container_without_a_record_is_counted_by_its_ids",
    ),
    "DP-10 the checkpoint is read only, and only where nothing else says it": (
        "agent/test_fence_restarts.py::test_an_init_container_alone_is_found_in_kubelets_checkpoint",
        "agent/test_podresources.py::test_malformed_checkpoint_raises_an_error_that_names_the_file",
    ),
    "DP-11 MIG instances as cards, mixed cards, none": (
        "agent/test_device_plugin.py::test_mig_instances_are_cards_of_their_own",
        "agent/test_discovery.py::test_gpu_switched_into_mig_mode_is_no_longer_a_card",
        "agent/test_discovery.py::test_a_node_without_a_driver_has_no_cards_until_one_appears",
    ),
}
"""What a device plugin owes kubelet, and the tests that show it."""


def rows() -> set[int]:
    return {int(fault.split()[0].removeprefix("F")) for fault in (*TRIED, *NOT_TRIED)}


def test_every_duty_of_a_device_plugin_is_here() -> None:
    assert [int(duty.split()[0].removeprefix("DP-")) for duty in DEVICE_PLUGIN] == list(range(1, 12))


def test_every_row_of_the_matrix_is_here() -> None:
    assert rows() == set(range(1, 31))


def test_every_named_test_of_a_fault_exists() -> None:
    wanted = sorted({where for places in (*TRIED.values(), *DEVICE_PLUGIN.values()) for where in places})
    functions = {file: _function_names(file) for file in {where.partition("::")[0] for where in wanted}}
    assert [where for where in wanted if where.partition("::")[2] not in functions[where.partition("::")[0]]] == []


def _function_names(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
