"""Breaks of the node agent: which container may start, what it is told about its card, and what is counted as held."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutations.breaks import Mutation

FORCED = "tests/agent/test_fence_forced.py"
OLDER = "tests/agent/test_fence_foreign_pods.py"
FORGED = f"{OLDER}::test_forged_record_is_refused_with_the_reason"
AGAIN = "tests/agent/test_fence_restarts.py"
KILLS = "tests/agent/test_fence_kills.py"
PLUGIN = "tests/agent/test_device_plugin.py"
LINGERING = "tests/agent/test_lingering_pods.py"
GRANTS = "tests/cards/test_grants.py"
HEALTH = "tests/agent/test_health.py"
VERDICTS = "tests/agent/test_card_verdicts.py"

MISSING = "tests/agent/test_missing_cards.py"
GONE = f"{MISSING}::test_a_card_that_is_gone_goes_to_no_container[its board was exchanged, by environment and kernel module]"
PRESENCES = "tests/agent/test_discovery.py::test_only_a_list_that_can_tell_takes_a_card_for_gone"

AGENT: Mapping[str, Mutation] = {
    "a card that is gone may go to a first start": Mutation(
        "vrampack/agent/admission/fence.py",
        "if presence is CardPresence.MISSING:",
        "if False:",
        GONE,
    ),
    "a card that is gone may go to a restart": Mutation(
        "vrampack/agent/admission/prestart.py",
        "self._fence.check_presence(admitted.grant.units)",
        "pass",
        GONE,
    ),
    "a restart does not wait for a list of cards": Mutation(
        "vrampack/agent/admission/prestart.py",
        "await self._card_lists.wait_until_known(admitted.grant.units.keys(), LIST_WAIT_SECONDS)",
        "pass",
        f"{MISSING}::test_a_start_while_the_driver_lists_no_cards_is_tried_again",
    ),
    "the numbers of a card that is gone are used": Mutation(
        "vrampack/agent/inventory/discovery.py",
        "return {uuid: known.gpu for uuid, known in self._known_cards.items() if not known.is_missing}",
        "return {uuid: known.gpu for uuid, known in self._known_cards.items()}",
        f"{PRESENCES}[not listed]",
    ),
    "a list that is not complete takes cards for gone": Mutation(
        "vrampack/agent/inventory/known_cards.py",
        "if inventory.unreadable and not (known is not None and is_repartitioned(known.gpu, inventory)):",
        "if False:",
        f"{PRESENCES}[not listed in a list that is not complete]",
    ),
    "a driver that does not answer still lists its cards": Mutation(
        "vrampack/agent/inventory/discovery.py",
        "if self._inventory is None or self._failed_lists:",
        "if self._inventory is None:",
        f"{PRESENCES}[no list]",
    ),
    "the hook may give a card that the driver does not list": Mutation(
        "vrampack/agent/limits/enforcement.py",
        "if problem := explain_absence(uuid, self._context.cards.find_presence(uuid)):",
        "if problem := '':",
        "tests/agent/limits/test_enforcement.py::test_no_limit_is_applied_on_a_card_that_the_driver_does_not_list[CardPresence.MISSING]",
    ),
    "a host may give a card that the driver does not list": Mutation(
        "vrampack/agent/host/limits.py",
        "if problem := explain_absence(uuid, self._find_presence(uuid)):",
        "if problem := '':",
        "tests/agent/limits/test_host_limits.py::test_a_card_that_the_driver_does_not_list_goes_to_no_container[CardPresence.MISSING]",
    ),
    "a card that comes back has the minor that it had": Mutation(
        "vrampack/agent/nvml/session.py",
        "minor=pynvml.nvmlDeviceGetMinorNumber(handle),",
        "minor=known.minor if known else pynvml.nvmlDeviceGetMinorNumber(handle),",
        "tests/agent/nvml/test_inventory.py::test_a_card_that_comes_back_at_another_place_has_its_new_numbers",
    ),
    "a pod of another node may start": Mutation(
        "vrampack/agent/admission/fence.py",
        "_check_origin(pod, self._node)",
        "pass",
        f"{OLDER}::test_a_pod_of_another_node_is_refused",
    ),
    "a runtime class that goes past the hook may start": Mutation(
        "vrampack/agent/admission/fence.py",
        "if not self._is_class_allowed(pod.runtime_class):",
        "if False:",
        f"{OLDER}::test_runtime_class_that_bypasses_the_hook_is_refused[one that goes past]",
    ),
    "what went past the hook is not looked for": Mutation(
        "vrampack/agent/admission/unguarded_starts.py",
        "return bool(get_limits_mib(container.pod.pod.uid, container.container))",
        "return False",
        "tests/agent/test_hook_agent.py::test_container_that_bypassed_the_hook_is_reported",
    ),
    "a DRA driver may offer the same cards": Mutation(
        "vrampack/agent/device_plugin/resource_slices.py",
        "shared = sorted(_list_uuids(slices) & ours)",
        "shared = sorted(_list_uuids(slices) & set())",
        "tests/agent/test_resource_slices.py::test_a_resource_slice_with_our_card_withdraws_the_offer[our card]",
    ),
    "a container that no record names starts without a limit": Mutation(
        "vrampack/agent/admission/pod_workload.py",
        "return {} if isinstance(record, Record) and not record.is_ours else None",
        "return {} if isinstance(record, Record) else None",
        "tests/agent/test_hook_agent.py::test_a_container_that_its_pods_record_does_not_name_is_refused",
    ),
    "a full card takes another pod": Mutation(
        "vrampack/agent/admission/fence.py",
        "if held[uuid] + asked > cards[uuid].units:",
        "if False:",
        f"{FORCED}::test_of_two_simultaneous_starts_for_the_same_memory_one_succeeds",
    ),
    "who passed is judged again": Mutation(
        "vrampack/agent/admission/fence.py",
        "if pod.pod.uid in self._units_by_pod:",
        "if False:",
        f"{AGAIN}::test_admitted_pod_may_restart_when_its_card_has_fewer_units_than_it_was_given",
    ),
    "a pod of before admission may start": Mutation(
        "vrampack/agent/admission/fence.py",
        "if pod.pod.request is None or not (start.is_injected or pod.pod.request.has_references):",
        "if pod.pod.request is None:",
        f"{OLDER}::test_pod_created_before_the_policy_is_refused_with_the_fix",
    ),
    "an admission outlives its ids": Mutation(
        "vrampack/agent/admission/fence.py",
        "handed = set(ids)",
        "handed: set[str] = set()",
        f"{AGAIN}::test_a_replacement_pod_with_the_same_name_and_ids_is_checked_again",
    ),
    "a record need not give what was asked": Mutation(
        "vrampack/agent/admission/fence.py",
        "_check_request(pod, container, grant, shares, cards)",
        "pass",
        f"{FORGED}[fewer units for the pod than asked]",
    ),
    "a forged record says that its units are more of the card": Mutation(
        "vrampack/agent/admission/fence.py",
        "if share.card_units not in (None, card.units):",
        "if False:",
        f"{FORGED}[more of the card than it has units]",
    ),
    "a running pod counts in the units that its card had": Mutation(
        "vrampack/agent/admission/fence.py",
        "units[uuid] += count_share_units(share, cards[uuid]) if uuid in cards else share.units",
        "units[uuid] += share.units",
        f"{AGAIN}::test_after_a_change_of_unit_running_pods_hold_their_memory_in_new_units",
    ),
    "a container needs no limit": Mutation(
        "vrampack/agent/admission/fence.py",
        "if grant.limits_mib.get(uuid, most + 1) > most:",
        "if grant.limits_mib.get(uuid, 0) > most:",
        f"{FORGED}[no limit at all]",
    ),
    "a limit may be above the share": Mutation(
        "vrampack/agent/admission/fence.py",
        "if grant.limits_mib.get(uuid, most + 1) > most:",
        "if uuid not in grant.limits_mib:",
        f"{FORGED}[a limit above the share]",
    ),
    "a card may be of another node": Mutation(
        "vrampack/agent/admission/fence.py", "if strangers:", "if False:", f"{FORGED}[a card without a uuid]"
    ),
    "only the container that kubelet names is checked": Mutation(
        "vrampack/agent/admission/fence.py",
        "names = [start.allocation.container, *(each.name for each in pod.pod.request.containers)]",
        "names = [start.allocation.container]",
        f"{OLDER}::test_a_forged_init_container_keeps_its_pod_from_starting[the whole card]",
    ),
    "what runs already holds nothing": Mutation(
        "vrampack/agent/admission/fence.py",
        "self._units_by_pod[pod.pod.uid] = Counter(_resolve_units(shares, by_uuid) or _count_units_by_ids(mine))",
        "self._units_by_pod[pod.pod.uid] = Counter()",
        f"{KILLS}::test_a_restarted_agent_counts_running_pods_without_disturbing_them",
    ),
    "a deleted pod's card is free while the node runs it": Mutation(
        "vrampack/agent/admission/lingering_pods.py",
        "if remains.cgroup is None:",
        "if True:",
        f"{LINGERING}::test_cgroup_without_processes_keeps_the_card_held_for_a_minute[v1, systemd]",
    ),
    "the next agent does not know a deleted pod that the node runs": Mutation(
        "vrampack/agent/admission/running_pods.py",
        "await self._restore_lingering_pods()",
        "pass",
        f"{LINGERING}::test_the_next_agent_still_counts_a_lingering_pod",
    ),
    "a restarted agent begins with an empty book": Mutation(
        "vrampack/agent/admission/running_pods.py",
        "self._fence.restore_pods(self._pod_cache.list_pods(), await self._list_allocations(), self._get_cards())",
        "pass",
        f"{KILLS}::test_a_restarted_agent_counts_running_pods_without_disturbing_them",
    ),
    "a namesake on another node is evicted": Mutation(
        "vrampack/agent/admission/rejected_pods.py",
        'if found.reason != "other_node":  # a pod of the same name, which runs elsewhere and must not be evicted',
        "if True:",
        f"{FORCED}::test_pod_with_the_same_name_on_another_node_is_left_alone",
    ),
    "a deleted pod releases its units with a start that fails": Mutation(
        "vrampack/agent/admission/fence.py",
        "if uid not in self._lingering_names and not any(each.pod_uid == uid for each in self._admitted_starts.values()):",
        "if not any(each.pod_uid == uid for each in self._admitted_starts.values()):",
        "tests/agent/test_lingering_pods.py::test_a_start_that_fails_after_its_pod_was_deleted_releases_nothing",
    ),
    "the extender evicts a pod that started after all": Mutation(
        "extender/eviction/refused_pod_evictor.py",
        "if seen.is_running and refusal.reason not in REASONS_TO_EVICT_RUNNING:",
        "if False:",
        "tests/extender/test_refused_pod_evictor.py::test_a_pod_that_runs_is_evicted_only_for_what_it_does",
    ),
    "Allocate gives cards to containers that have none": Mutation(
        "vrampack/agent/admission/injection.py",
        'NO_CARD_ENV: Final = {VISIBLE_DEVICES_VARIABLE: "void"}',
        'NO_CARD_ENV: Final = {VISIBLE_DEVICES_VARIABLE: "all"}',
        f"{PLUGIN}::test_allocate_names_no_card_and_refuses_foreign_ids",
    ),
    "Allocate tells the fence nothing": Mutation(
        "vrampack/agent/device_plugin/device_plugin.py",
        "self._prestart.release_ids(ids)",
        "pass",
        f"{AGAIN}::test_a_replacement_pod_with_the_same_name_and_ids_is_checked_again",
    ),
    "a refusal is a yes": Mutation(
        "vrampack/agent/device_plugin/device_plugin.py",
        "await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, error.text)",
        "pass",
        f"{FORCED}::test_of_two_simultaneous_starts_for_the_same_memory_one_succeeds",
    ),
    "kubelet is not told that it must ask": Mutation(
        "vrampack/agent/device_plugin/device_plugin.py",
        "PLUGIN_OPTIONS = api.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)",
        "PLUGIN_OPTIONS = api.DevicePluginOptions(pre_start_required=False, get_preferred_allocation_available=True)",
        f"{OLDER}::test_a_pod_without_a_record_is_refused",
    ),
    "the visible card may be another than the allocation's": Mutation(
        "vrampack/cards/grants.py",
        '_expect(annotations, visible, ",".join(grant.units), strip=f"{well_known.CDI_KIND}=")',
        "pass",
        f"{GRANTS}::test_a_damaged_or_inconsistent_grant_is_an_error_that_names_it[all visible]",
    ),
    "the limit in the environment may be another": Mutation(
        "vrampack/cards/grants.py",
        "if grant.limits_mib:",
        "if False:",
        f"{GRANTS}::test_a_damaged_or_inconsistent_grant_is_an_error_that_names_it[another limit]",
    ),
    "an old list of kubelet's device allocations is taken for a new one": Mutation(
        "vrampack/agent/kubelet/podresources.py",
        "self._next_answer = None",
        "pass",
        "tests/agent/test_podresources.py::test_a_caller_during_a_list_gets_a_later_one",
    ),
    "a crowd of half-sent requests keeps its connections": Mutation(
        "vrampack/agent/status/bounded_server.py",
        "self._open_connections.add_connection(connection)",
        "pass",
        "tests/agent/test_bounded_server.py::test_the_newest_connection_is_answered_while_others_are_held_open",
    ),
    "any account of the cluster reads the metrics": Mutation(
        "vrampack/agent/status/metrics_access.py",
        "return HTTPStatus.OK if is_allowed else HTTPStatus.FORBIDDEN",
        "return HTTPStatus.OK",
        "tests/agent/test_metrics_access.py::test_an_access_review_is_cached_for_a_while",
    ),
    "who holds what is told to every user of the node": Mutation(
        "vrampack/agent/status/http.py",
        "listener = name.bind_socket(socket.SOCK_STREAM, mode=0o600)",
        "listener = name.bind_socket(socket.SOCK_STREAM, mode=0o666)",
        "tests/cli/limits/test_limits.py::test_limits_are_printed_as_json_with_the_same_values",
    ),
    "ids of another plugin are taken for ours": Mutation(
        "vrampack/agent/kubelet/device_ids.py",
        "return uuid if separator and uuid and number.isascii() and number.isdecimal() else None",
        "return uuid or None",
        "tests/agent/test_device_ids.py::test_ids_of_another_plugin_are_not_ours[GPU-0::x]",
    ),
    "what NVML does not say heals a card": Mutation(
        "vrampack/agent/inventory/verdicts.py",
        "return condition.is_remap_pending is False",
        "return condition.is_remap_pending is not True",
        f"{HEALTH}::test_only_matching_evidence_counts_as_a_repair[of the remap nothing is said]",
    ),
    "a boot that is not known heals a card": Mutation(
        "vrampack/agent/inventory/verdicts.py",
        "was_booted = bool(boot and verdict.boot) and boot != verdict.boot",
        "was_booted = boot != verdict.boot",
        f"{HEALTH}::test_only_matching_evidence_counts_as_a_repair[the boot is not known]",
    ),
    "clean checks heal what needs a repair": Mutation(
        "vrampack/agent/inventory/health.py",
        "if self.verdict is not None and not is_repaired:",
        "if False:",
        f"{HEALTH}::test_a_verdict_outlives_clean_checks_without_evidence",
    ),
    "a card that leaves the list leaves its verdict behind": Mutation(
        "vrampack/agent/inventory/discovery.py",
        "self._verdicts.keep_dropped(known)",
        "pass",
        f"{VERDICTS}::test_repartitioning_keeps_the_verdict",
    ),
    "an operator's word heals what comes after it": Mutation(
        "vrampack/agent/inventory/verdict_book.py",
        "return (heal is not None and verdict.since <= heal.at) or is_repaired(verdict, condition, self._boot)",
        "return heal is not None or is_repaired(verdict, condition, self._boot)",
        f"{VERDICTS}::test_operator_can_heal_a_card_without_evidence_of_repair",
    ),
}
