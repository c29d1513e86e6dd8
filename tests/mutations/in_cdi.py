"""Breaks of just-in-time CDI: whose card is in a spec, who has read it, and when it goes."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutations.breaks import Mutation

PUBLISHER = "tests/agent/cdi/test_spec_publisher.py"
EDITS = "tests/agent/cdi/test_edits_source.py"
WHOLE = "tests/agent/cdi/test_injection.py"

CDI: Mapping[str, Mutation] = {
    "the spec of a card that is gone stays": Mutation(
        "vrampack/agent/cdi/spec_publisher.py",
        "is_gone = any(self._is_missing(uuid) for uuid in living.owner.cards)",
        "is_gone = False",
        f"{PUBLISHER}::test_spec_of_a_card_that_is_gone_is_deleted",
    ),
    "a card that is exchanged while its spec is made is given": Mutation(
        "vrampack/agent/admission/card_injection.py",
        "if self._get_gpus().get(uuid) != gpu:  # nvidia-ctk may take longer than the driver needs for another list",
        "if False:",
        "tests/agent/test_missing_cards.py::test_a_card_that_is_exchanged_while_its_spec_is_made_is_not_given",
    ),
    "a pod chooses what it sees of the driver": Mutation(
        "vrampack/agent/admission/card_injection.py",
        'f"{DRIVER_CAPABILITIES_VARIABLE}={self._driver_capabilities}",',
        "",
        f"{WHOLE}::test_a_container_gets_its_card_when_it_starts",
    ),
    "a spec lets NVIDIA's runtime add every card": Mutation(
        "vrampack/agent/admission/card_injection.py",
        'VISIBLE_DEVICES_VARIABLE: "void",',
        'VISIBLE_DEVICES_VARIABLE: "all",',
        f"{WHOLE}::test_a_container_gets_its_card_when_it_starts",
    ),
    "nodes for drawing go by under another name": Mutation(
        "vrampack/agent/cdi/card_edits.py",
        "_is_of_drm(node.path, node.host_path) or node.major == DRM_MAJOR or MODESET_NODE in {node.path, node.host_path}",
        "_is_of_drm(node.path) or node.major == DRM_MAJOR or MODESET_NODE in {node.path, node.host_path}",
        f"{EDITS}::test_device_nodes_for_graphics_are_dropped_under_any_name",
    ),
    "a start does not wait for the runtime": Mutation(
        "vrampack/agent/cdi/spec_publisher.py",
        "await self._wait_for_reads(reads)",
        "pass",
        f"{PUBLISHER}::test_publishing_fails_when_the_runtime_does_not_read_the_spec",
    ),
    "a spec outlives the creation of its container": Mutation(
        "vrampack/agent/cdi/spec_publisher.py",
        "is_created = bool(shown) and shown != living.former_id",
        "is_created = False",
        f"{PUBLISHER}::test_spec_is_deleted_once_its_container_exists",
    ),
    "a spec stays that was written for another container of the start": Mutation(
        "vrampack/agent/cdi/spec_publisher.py",
        "for name in living.written_with:",
        "for name in {living.owner.name}:",
        f"{PUBLISHER}::test_specs_published_together_are_deleted_together",
    ),
    "a spec outlives its pod": Mutation(
        "vrampack/agent/cdi/spec_publisher.py",
        "for name in [name for name, living in self._living.items() if living.owner.pod_uid == uid]:",
        "for name in ():",
        f"{PUBLISHER}::test_spec_is_deleted_with_its_pod",
    ),
    "a card gets the numbers of another boot": Mutation(
        "vrampack/agent/cdi/edits_source.py",
        "found = renumber_nodes(found, _read_majors(self._paths.proc))",
        "pass",
        f"{EDITS}::test_device_numbers_from_before_a_reboot_are_not_used",
    ),
    "a device is taken by its name alone": Mutation(
        "vrampack/agent/cdi/card_edits.py",
        "return own is not None and cards | capabilities == set(own)",
        "return own is not None",
        f"{EDITS}::test_spec_with_an_outdated_device_number_exposes_no_other_card",
    ),
    "nodes for drawing come along": Mutation(
        "vrampack/agent/cdi/edits_source.py",
        "return found if self._has_drm_nodes else drop_drm_nodes(found)",
        "return found",
        f"{EDITS}::test_edits_give_a_card_its_device_nodes_and_the_driver_but_no_other_card",
    ),
    "the agent reads its own specs": Mutation(
        "vrampack/agent/cdi/edits_source.py",
        'if entry.name.endswith((".json", ".yaml")) and not is_spec_of_ours(entry.name):',
        'if entry.name.endswith((".json", ".yaml")):',
        f"{EDITS}::test_our_own_specs_are_not_read",
    ),
}
