"""Breaks of the back end `kmod`."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutations.breaks import Mutation

BACK_END = "vrampack/agent/limits/kmod/backend.py"
TESTS = "tests/agent/limits/kmod/test_backend.py"

KMOD: Mapping[str, Mutation] = {
    "a limit that was changed never reaches the module": Mutation(
        BACK_END,
        "if minor in listed.cards and listed.cards[minor].limit_bytes != size_bytes:",
        "if False:",
        f"{TESTS}::test_a_limit_that_changed_is_pushed",
    ),
    "a container that runs gets a second budget beside its pod's": Mutation(
        BACK_END,
        "elif may_add and not (each.is_added_by_hook and each.pod_uid in uids):",
        "elif may_add:",
        f"{TESTS}::test_container_without_a_hook_request_stays_in_its_pods_budget",
    ),
    "a caller that gives up lets another one in beside its thread": Mutation(
        BACK_END,
        "return await asyncio.shield(asyncio.create_task(run()))",
        "return await run()",
        f"{TESTS}::test_a_caller_that_gives_up_leaves_the_module_to_its_thread",
    ),
    "who is gone is forgotten with files still open": Mutation(
        BACK_END,
        "if _OWNER_UID.fullmatch(uid) and not listed[name].files and self._workload.is_gone(uid):",
        "if _OWNER_UID.fullmatch(uid) and self._workload.is_gone(uid):",
        f"{TESTS}::test_a_budget_is_removed_once_its_pod_is_gone_and_no_file_is_open",
    ),
    "instances that people made are removed": Mutation(
        BACK_END,
        "if _OWNER_UID.fullmatch(uid) and not listed[name].files and self._workload.is_gone(uid):",
        "if not listed[name].files and self._workload.is_gone(uid):",
        f"{TESTS}::test_budgets_added_by_hand_are_left_alone",
    ),
    "instances that people made are given to pods": Mutation(
        BACK_END,
        'made = [each for each in listed if not _OWNER_UID.fullmatch(each.name.partition(".")[0])]',
        "made = []",
        f"{TESTS}::test_instances_that_people_made_are_not_for_pods",
    ),
    "a module that holds no limit lets containers start": Mutation(
        BACK_END,
        "problem = find_module_problem(self._client.read_state(), self._context.cards.driver_version)",
        'problem = ""',
        f"{TESTS}::test_a_module_that_enforces_no_limit_is_reported_and_refuses_starts",
    ),
}
