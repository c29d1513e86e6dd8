"""Breaks of the accounting that the preloaded library asks: who may hold how much, and what remains after a crash."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutations.breaks import Mutation

ROOM = "vrampack/agent/limits/preload"
TESTS = "tests/agent/limits/preload"
SERVER = f"{TESTS}/test_server.py"
RESTART = f"{TESTS}/test_restart.py"
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
        f"{ROOM}/known_processes.py",
        "if peers.is_ending(connection.process):",
        "if False:",
        f"{LEAVING}::test_memory_of_an_exiting_process_is_granted_only_after_its_exit",
    ),
    "garbage gives back what its process holds": Mutation(
        f"{ROOM}/server.py",
        "return self._known.disconnect(connection)",
        "return self._known.accept_hang_up(connection)",
        f"{SERVER}::test_a_process_whose_connection_was_closed_keeps_its_charge_until_it_ends",
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
}
