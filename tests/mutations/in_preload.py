"""Breaks of the accounting that the preloaded library asks: who may hold how much, and what remains after a crash."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutations.breaks import Mutation

ROOM = "vrampack/agent/limits/preload"
TESTS = "tests/agent/limits/preload"
SERVER = f"{TESTS}/test_server.py"
RESTART = f"{TESTS}/test_restart.py"
FLOOD = f"{TESTS}/test_flood.py"
LEAVING = f"{TESTS}/test_process_exit.py"
JOURNAL = f"{TESTS}/test_journal.py"

PRELOAD: Mapping[str, Mutation] = {
    "a process is held to the limit alone, not with the others of its container": Mutation(
        f"{ROOM}/usage_ledger.py",
        "return more_bytes <= 0 or self.get_used_bytes(page.owner, part[0]) + more_bytes <= limit_bytes",
        "return more_bytes <= 0 or wanted_bytes <= limit_bytes",
        f"{SERVER}::test_a_process_may_hold_up_to_the_limit_of_its_container",
    ),
    "what is above a lowered limit cannot even become less": Mutation(
        f"{ROOM}/usage_ledger.py",
        "return more_bytes <= 0 or self.get_used_bytes(page.owner, part[0]) + more_bytes <= limit_bytes",
        "return self.get_used_bytes(page.owner, part[0]) + more_bytes <= limit_bytes",
        f"{SERVER}::test_memory_already_held_is_accepted_above_the_limit",
    ),
    "of several cards that may be meant the first is taken": Mutation(
        f"{ROOM}/decisions.py",
        "return meant[0] if len(meant) == 1 else None",
        "return meant[0] if meant else None",
        f"{SERVER}::test_only_a_single_mig_instance_of_a_gpu_can_be_identified",
    ),
    "what a dying process still has is given to the next": Mutation(
        f"{ROOM}/server.py",
        "if peers.is_ending(connection.process):",
        "if False:",
        f"{LEAVING}::test_memory_of_an_exiting_process_is_granted_only_after_its_exit",
    ),
    "who could have it in a moment is refused at once": Mutation(
        f"{ROOM}/server.py",
        "is_hopeful = self._exiting_counts[connection.owner] > 0 and not self._was_past_deadline(connection)",
        "is_hopeful = False",
        f"{LEAVING}::test_memory_of_an_exiting_process_is_granted_only_after_its_exit",
    ),
    "garbage gives back what its process holds": Mutation(
        f"{ROOM}/server.py",
        "return self._disconnect(connection)",
        "return self._on_disconnect(connection)",
        f"{SERVER}::test_a_process_whose_connection_was_closed_keeps_its_charge_until_it_ends",
    ),
    "a process that asks too fast does not wait": Mutation(
        f"{ROOM}/rate_limit.py",
        "return max(0.0, -bucket.tokens / self._per_second)",
        "return 0.0",
        f"{SERVER}::test_a_process_that_asks_too_often_waits_without_delaying_others",
    ),
    "one pod may have every connection": Mutation(
        f"{ROOM}/server.py",
        "if peer is None or self._is_full_for(peer.process, pod):",
        "if peer is None:",
        f"{SERVER}::test_a_pod_cannot_take_all_connections",
    ),
    "a turn lasts until all that is ready was answered": Mutation(
        f"{ROOM}/server.py",
        "while len(turn) < MESSAGE_BATCH and (found := self._queue.pop()) is not None:",
        "while (found := self._queue.pop()) is not None:",
        f"{FLOOD}::test_forty_flooding_containers_leave_turns_small_and_each_pod_its_own",
    ),
    "who has more processes is served more": Mutation(
        f"{ROOM}/server.py",
        "self._queue.push(pod, item)",
        "self._queue.push(NODE, item)",
        f"{FLOOD}::test_forty_flooding_containers_leave_turns_small_and_each_pod_its_own",
    ),
    "only each pod alone has a rate": Mutation(
        f"{ROOM}/server.py",
        "await asyncio.sleep(self._node_rate.take_tokens(NODE, 0))",
        "await asyncio.sleep(0)",
        f"{FLOOD}::test_all_pods_together_are_held_to_the_rate_of_the_node",
    ),
    "a question that waits is tried again outside its pod's rate": Mutation(
        f"{ROOM}/server.py",
        "self._queue.push(_get_pod(connection.owner), connection)",
        "self._queue.push(NODE, connection)",
        f"{FLOOD}::test_questions_that_wait_take_their_turns_like_others",
    ),
    "few pods fill the node for all": Mutation(
        f"{ROOM}/server.py",
        "return count >= limits.max_processes or (is_node_full and count >= limits.guaranteed_processes)",
        "return count >= limits.max_processes or is_node_full",
        f"{FLOOD}::test_a_pod_finds_room_on_a_node_that_others_have_filled",
    ),
    "processes that are watched are not counted": Mutation(
        f"{ROOM}/server.py",
        "self._process_counts[_get_pod(owner)] += 1",
        "self._process_counts[_get_pod(owner)] += 0",
        f"{FLOOD}::test_a_disconnected_process_still_takes_a_place_of_its_pod",
    ),
    "unread answers pile up in the agent's memory": Mutation(
        f"{ROOM}/server.py",
        "connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ANSWER_BUFFER_BYTES)",
        "connected.setblocking(False)",
        f"{FLOOD}::test_answers_that_are_not_read_do_not_fill_the_agent_s_memory",
    ),
    "two agents write one file": Mutation(
        f"{ROOM}/journal.py",
        "fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        f"{JOURNAL}::test_journal_cannot_be_opened_by_two_agents",
    ),
    "a damaged record is believed": Mutation(
        f"{ROOM}/journal.py",
        "if not held_bytes or zlib.crc32(IDENTITY.pack(started_ticks, *names), pid) != check:",
        "if not held_bytes:",
        f"{JOURNAL}::test_a_corrupt_byte_loses_only_its_own_record",
    ),
    "a file of another boot is believed": Mutation(
        f"{ROOM}/journal.py",
        'return "" if boot_id.rstrip(b"\\0") == self._boot_id else "of another boot"',
        'return ""',
        f"{JOURNAL}::test_a_file_of_another_kind_is_replaced_and_logged",
    ),
    "a process with a number of before is taken for it": Mutation(
        f"{ROOM}/peers.py",
        "if read_start_ticks(process.pid) != process.started_ticks or has_ended(pidfd):",
        "if has_ended(pidfd):",
        f"{RESTART}::test_a_process_that_reuses_a_pid_is_not_taken_for_the_earlier_one",
    ),
    "a record that the fence would refuse is followed": Mutation(
        "vrampack/agent/admission/pod_workload.py",
        "return watched if known[2] else admitted",
        "return watched",
        "tests/agent/test_pod_workload.py::test_only_limit_changes_of_an_admitted_pod_are_followed",
    ),
    "a limit is never changed while its pod runs": Mutation(
        "vrampack/agent/admission/pod_workload.py",
        "return watched if known[2] else admitted",
        "return admitted",
        "tests/agent/test_pod_workload.py::test_only_limit_changes_of_an_admitted_pod_are_followed",
    ),
}
