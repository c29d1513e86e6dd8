"""Every shipped policy file does what its first lines say, placed pod by pod by the extender's own verbs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from extender.policy_file import PlacementPolicy, find_policy_file, list_presets, load_placement_policy
from extender.settings import ExtenderConfiguration, load_settings
from extender.state.namespaces import NamespaceLabels
from extender.state.placement_change import apply_placement
from tests.extender.scheduler_harness import SchedulerHarness
from vrampack.cards.profiles import PlacementSettings
from vrampack.config.errors import SettingsError

ROOT = Path(__file__).parents[2]


async def place_pods(policy: PlacementPolicy, pods: list[tuple[str, int]]) -> dict[str, list[int]]:
    """Where these pods (namespace, units) go one by one: used units of every card of two nodes with two of 16."""
    harness = SchedulerHarness({"a": [16, 16], "b": [16, 16]})
    settings = ExtenderConfiguration(
        apiVersion="vrampack.dev/v1", kind="ExtenderConfiguration", profiles=policy.profiles, rules=policy.rules
    )
    namespaces = NamespaceLabels({"vrampack.dev/workload"})
    namespaces.put_labels("shop", (("vrampack.dev/workload", "serving"),))
    for name in ("default", "team"):
        namespaces.put_labels(name, ())
    placement: PlacementSettings = settings.build_placement()
    await apply_placement(harness.ledger, placement, namespaces)
    harness.parts.engine.set_tuning(policy.policy)
    for number, (namespace, units) in enumerate(pods):
        name = f"pod-{number}"
        harness.ledger.update_pod(replace(harness.add_pending_pod(name, units), namespace=namespace))
        call = json.loads(harness.encode_call(name, units))
        call["Pod"]["metadata"]["namespace"] = namespace
        body = json.dumps(call).encode()
        if not json.loads(harness.parts.verbs.filter(body).body)["NodeNames"]:
            continue
        best = json.loads(harness.parts.verbs.prioritize(body).body)[0]["Host"]
        harness.api.pods[namespace, name] = call["Pod"]
        bind = {"PodName": name, "PodNamespace": namespace, "PodUID": name, "Node": best}
        assert json.loads((await harness.parts.verbs.bind(json.dumps(bind).encode())).body)["Error"] == ""
    return {node.name: [card.used_units for card in node.cards] for node in harness.ledger.list_nodes()}


def load_preset(name: str) -> PlacementPolicy:
    return load_placement_policy(find_policy_file(name))


@pytest.mark.parametrize("name", list_presets())
def test_a_preset_states_its_purpose_its_cost_and_its_test(name: str) -> None:
    head = find_policy_file(name).read_text().splitlines()[:3]
    assert [line.partition(":")[0] for line in head] == ["# For", "# Gives up", "# Proved by"]
    file, _, test = head[2].partition(": ")[2].partition("::")
    assert f"def {test}(" in (ROOT / file).read_text()
    assert f"`{name}`" in (ROOT / "docs" / "configuration.md").read_text()
    load_preset(name)


async def test_dense_keeps_cards_empty_for_large_pods() -> None:
    """Four small pods take one card, so that three large ones find each a card."""
    used = await place_pods(load_preset("dense"), [("default", 4)] * 4 + [("default", 16)] * 3)
    assert used == {"a": [16, 16], "b": [16, 16]}


async def test_fast_gives_each_pod_a_card_of_its_own_while_there_is_one() -> None:
    used = await place_pods(load_preset("fast"), [("default", 4)] * 4)
    assert used == {"a": [4, 4], "b": [4, 4]}


async def test_autoscaled_keeps_nodes_empty() -> None:
    """14 would leave less free on a card of its own than beside 4; both nodes would be in use by then."""
    used = await place_pods(load_preset("autoscaled"), [("default", 4), ("default", 14), ("default", 12)])
    assert used == {"a": [16, 14], "b": [0, 0]}


async def test_tenants_preset_keeps_tenants_on_separate_cards() -> None:
    used = await place_pods(load_preset("tenants"), [("default", 4), ("team", 4), ("default", 4), ("shop", 16)])
    assert used == {"a": [8, 4], "b": [16, 0]}


async def test_mixed_spreads_services_and_packs_the_rest() -> None:
    used = await place_pods(load_preset("mixed"), [("team", 2), ("team", 2), ("shop", 4), ("shop", 4), ("team", 2)])
    assert used == {"a": [6, 4], "b": [4, 0]}


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SettingsError, match="densest is neither a file nor a preset; presets are autoscaled, dense, "):
        find_policy_file("densest")


def test_policy_and_rules_may_be_given_in_only_one_of_the_two_files(tmp_path: Path) -> None:
    file = tmp_path / "extender.yaml"
    file.write_text("apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\nunit_mib: 256\n")
    settings = load_settings(file, {}, find_policy_file("fast"))
    assert (settings.unit_mib, settings.policy.default) == (256, "spread")
    file.write_text(file.read_text() + "rules: {max_pods_per_card: 4}\n")
    with pytest.raises(SettingsError, match=r"rules: given although there is a policy file, .*; give it only there"):
        load_settings(file, {}, find_policy_file("fast"))
