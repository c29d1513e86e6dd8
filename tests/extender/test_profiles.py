"""Which policy ranks for a pod: chosen by the file's order, and one generation from its filter to its bind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from extender.app import Extender, ExtenderOptions
from extender.config_reloader import ConfigurationSource
from extender.metrics import ExtenderMetrics
from extender.settings import load_settings
from extender.state.sync import RESOURCES
from tests.fakes.api import FakeKubeApi
from tests.support.builders import ledger_pod, node_facts
from tests.support.manifest_builders import RESOURCE, reference_env
from vrampack.cards.node import Share
from vrampack.cards.pod import Pod
from vrampack.cards.records import Record
from vrampack.cards.request import PodRequest
from vrampack.config.errors import SettingsError

HEAD = "apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\n"
PROFILES = """
policy: {default: binpack, allowed: [spread]}
profiles:
  - {name: gold, policy: node-binpack, users: {namespaces: [team-*], labels: {tier: gold}}}
  - {name: teams, policy: spread, users: {namespaces: [team-*]}}
  - {name: batch, policy: node-binpack, schedulers: [batch-*], by_annotation: true}
"""
NAMES = ["empty", "tight"]

CASES = {
    "none matches": (Pod("p", "other", "p"), "binpack"),
    "the first in the order of the file": (Pod("p", "team-a", "p", rule_labels=(("tier", "gold"),)), "node-binpack"),
    "by namespace": (Pod("p", "team-a", "p"), "spread"),
    "by another value of the label": (Pod("p", "team-a", "p", rule_labels=(("tier", "tin"),)), "spread"),
    "by scheduler": (Pod("p", "other", "p", scheduler_name="batch-1"), "node-binpack"),
    "an allowed policy wins": (Pod("p", "other", "p", scheduler_name="spread"), "spread"),
    "a profile by annotation wins": (Pod("p", "team-a", "p", scheduler_name="batch"), "node-binpack"),
    "a profile that may not be chosen": (Pod("p", "other", "p", scheduler_name="gold"), "binpack"),
}
"""The name of the scheduler is also what the pod wishes for."""


@pytest.mark.parametrize(("pod", "want"), CASES.values(), ids=CASES)
def test_the_policy_of_a_pod(tmp_path: Path, pod: Pod, want: str) -> None:
    (tmp_path / "extender.yaml").write_text(HEAD + PROFILES)
    settings = load_settings(tmp_path / "extender.yaml")
    asked = ledger_pod("p").request
    assert asked is not None
    settled = settings.build_placement().settle_request(pod, _with_wish(asked, pod.scheduler_name))
    assert settings.policy.choose_policy(settled.policy, settled.profile) == want


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (("spread",), "profiles.0.name: found 'spread', the name of a policy; give its own"),
        (("a", "b", "a"), "profiles.2.name: found 'a', the name of another profile; give its own"),
    ],
)
def test_a_profile_s_name_is_its_own(tmp_path: Path, names: tuple[str, ...], fault: str) -> None:
    file = tmp_path / "extender.yaml"
    file.write_text(HEAD + "profiles:\n" + "".join(f"  - {{name: {name}, policy: spread}}\n" for name in names))
    with pytest.raises(SettingsError) as raised:
        load_settings(file)
    assert str(raised.value) == f"{file}:{3 + len(names)}: {fault}"  # two lines of a head, and the list's own


async def test_ten_thousand_pods_are_each_ranked_by_one_generation(tmp_path: Path) -> None:
    """5 units are free on one node and 15 on the other: binpack names the first, spread the second."""
    file, random = tmp_path / "extender.yaml", Random(1)
    file.write_text(HEAD)
    metrics = ExtenderMetrics("test")
    service = Extender(
        ExtenderOptions(load_settings(file), "test", source=ConfigurationSource(file)), FakeKubeApi(), metrics
    )
    service._readiness.mark_prepared()
    for resource in RESOURCES:
        service._freshness.record_activity(resource)
        service._freshness.mark_listed(resource)
    for name in NAMES:
        service._ledger.update_node(node_facts(name, 15))
    record = Record("vrampack", (Share(10, "GPU-0", 0),))
    service._ledger.update_pod(ledger_pod("held", units=10, node="tight", record=record))
    assert service._config_reloader is not None
    verbs, policies = service._components.verbs, {1: "binpack"}
    for number in range(10_000):
        if number % 400 == 0:
            await _change_file(service, file, random, policies)
        body = _encode_call(f"pod-{number}")
        filtered = verbs.filter(body)
        if number % 400 == 200:
            await _change_file(service, file, random, policies)
        ranked = verbs.prioritize(body)
        assert json.loads(filtered.body)["NodeNames"] == NAMES
        assert filtered.generation == ranked.generation
        (best,) = [each["Host"] for each in json.loads(ranked.body) if each["Score"] == 10]
        assert best == ("tight" if policies[filtered.generation] == "binpack" else "empty")
        service._components.soft_reservations.release_pod(f"pod-{number}")
        proposal = {"Pod": json.loads(body)["Pod"], "NodeNameToMetaVictims": {}}
        preempted = await service._components.preemption.preempt(json.dumps(proposal).encode())
        assert preempted.generation == service._components.generations.current
    assert metrics.config_reload_failures._value.get() > 5
    assert max(policies) == service._components.generations.current == metrics.config_generation._value.get() > 10


async def _change_file(service: Extender, file: Path, random: Random, policies: dict[int, str]) -> None:
    """Another policy, by default or by profile, or a file with a fault."""
    policy = random.choice(["binpack", "spread", "best"])
    fresh = file.with_suffix(".new")
    by_profile = f"profiles: [{{name: a, policy: {policy}, users: {{namespaces: [default]}}}}]\n"
    fresh.write_text(HEAD + random.choice([f"policy: {{default: {policy}}}\n", by_profile]))
    fresh.rename(file)
    assert service._config_reloader is not None
    before = service._config_reloader.generation
    await service._config_reloader.reload_if_changed()
    if service._config_reloader.generation > before:
        policies[service._config_reloader.generation] = policy


def _with_wish(asked: PodRequest, wish: str) -> PodRequest:
    return replace(asked, policy=wish or None)


def _encode_call(name: str) -> bytes:
    container = {"name": "main", "resources": {"limits": {RESOURCE: "2"}}, "env": [reference_env("main")]}
    pod = {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"containers": [container]}}
    return json.dumps({"Pod": pod, "NodeNames": NAMES}).encode()
