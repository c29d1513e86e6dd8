"""Breaks of just-in-time CDI: whose card is in a spec, who has read it, and when it goes."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutations.breaks import Mutation

PUBLISHER = "tests/agent/cdi/test_spec_publisher.py"
PROBE = "tests/agent/cdi/test_runtime_probe.py"
EDITS = "tests/agent/cdi/test_edits_source.py"
WHOLE = "tests/agent/cdi/test_injection.py"

CDI: Mapping[str, Mutation] = {
    "nobody waits for the runtime": Mutation(
        "vrampack/agent/cdi/spec_publisher.py",
        "await self._wait_for_reads(reads)",
        "pass",
        f"{PUBLISHER}::test_a_runtime_with_cdi_off_gets_no_container",
    ),
    "a spec outlives the creation of its container": Mutation(
        "vrampack/agent/cdi/spec_publisher.py",
        "is_created = bool(shown) and shown != living.former_id",
        "is_created = False",
        f"{PUBLISHER}::test_a_spec_goes_when_its_container_exists",
    ),
    "a spec stays that was written for another container of the start": Mutation(
        "vrampack/agent/cdi/spec_publisher.py",
        "for name in living.written_with:",
        "for name in {living.owner.name}:",
        f"{PUBLISHER}::test_specs_of_one_start_go_together",
    ),
    "an agent stays whose spec folder is no more": Mutation(
        "vrampack/agent/admission/injection.py",
        'if self.mode == "cdi" and self._folder.is_removed():',
        "if not self.mode:",
        f"{WHOLE}::test_an_agent_whose_folder_was_removed_ends",
    ),
    "a spec goes by the news of the container before": Mutation(
        "vrampack/agent/cdi/spec_publisher.py",
        "if age >= LIFETIME_SECONDS or (is_created and age >= MIN_SECONDS):",
        "if age >= LIFETIME_SECONDS or is_created:",
        f"{PUBLISHER}::test_news_of_the_container_before_take_no_spec_away",
    ),
    "one reader of two is enough": Mutation(
        "vrampack/agent/cdi/runtime_probe.py",
        "if all(outcomes):",
        "if any(outcomes):",
        f"{PROBE}::test_of_two_runtimes_of_one_name_both_must_read",
    ),
    "a folder younger than the runtime stays unseen": Mutation(
        "vrampack/agent/cdi/runtime_probe.py",
        "wake_readers(self._folders)",
        "pass",
        f"{PROBE}::test_a_folder_that_is_younger_than_the_runtime_is_read_where_another_one_is_watched",
    ),
    "a device is taken by its name alone": Mutation(
        "vrampack/agent/cdi/card_edits.py",
        "return own is not None and cards | capabilities == set(own)",
        "return own is not None",
        f"{EDITS}::test_a_spec_older_than_the_drivers_numbering_hands_over_no_other_card",
    ),
    "nodes for drawing come along": Mutation(
        "vrampack/agent/cdi/edits_source.py",
        "return found if self._has_drm_nodes else drop_drm_nodes(found)",
        "return found",
        f"{EDITS}::test_a_card_gets_its_nodes_and_the_driver_and_no_other_card",
    ),
    "the agent reads its own specs": Mutation(
        "vrampack/agent/cdi/edits_source.py",
        'if entry.name.endswith((".json", ".yaml")) and not is_spec_of_ours(entry.name):',
        'if entry.name.endswith((".json", ".yaml")):',
        f"{EDITS}::test_our_own_specs_are_not_read",
    ),
    "every node hands cards over by CDI": Mutation(
        "vrampack/agent/admission/injection.py",
        'if self.mode == "cdi":',
        "if True:",
        f"{WHOLE}::test_where_the_runtime_cannot_the_environment_is_the_way",
    ),
    "a container that restarts has no spec": Mutation(
        "vrampack/agent/admission/prestart.py",
        "await self._inject_again(allocation, admitted, select_injected(entries, admitted.pod_uid))",
        "pass",
        f"{WHOLE}::test_a_restarted_agent_knows_the_names_and_sweeps",
    ),
}
