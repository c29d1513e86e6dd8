"""Which policy ranks for a pod: chosen by the file's order, and one generation from its filter to its bind."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from extender.app import Extender, ExtenderOptions
from extender.config_reloader import ConfigurationSource
from extender.metrics import ExtenderMetrics
from extender.policy_settings import PolicyTuning
from extender.settings import load_settings
from extender.state.sync import RESOURCES
from tests.extender.scheduler_harness import SchedulerHarness
from tests.fakes.api import FakeKubeApi
from tests.support.builders import ledger_pod, node_facts
from tests.support.manifest_builders import RESOURCE, reference_env
from vrampack.cards.node import Share
from vrampack.cards.pod import Pod
from vrampack.cards.records import Record
from vrampack.cards.request import CardRequest, PodRequest
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
def test_a_pods_policy_is_chosen_by_profile_or_annotation(tmp_path: Path, pod: Pod, want: str) -> None:
    (tmp_path / "extender.yaml").write_text(HEAD + PROFILES)
    settings = load_settings(tmp_path / "extender.yaml")
    asked = ledger_pod("p").request
    assert asked is not None
    settled = settings.build_placement().resolve_request(pod, _with_wish(asked, pod.scheduler_name))
    assert settings.policy.choose_policy(settled.policy, settled.profile).name == want


@pytest.mark.parametrize(("policy", "wants"), [("spread", False), ("tessellate", True)])
def test_data_that_a_profiles_policy_needs_is_kept(tmp_path: Path, policy: str, wants: bool) -> None:  # noqa: FBT001 - a table
    """Hosts and a forecast, which the default does not need."""
    file = tmp_path / "extender.yaml"
    file.write_text(HEAD + PROFILES.replace("policy: spread", f"policy: {policy}"))
    settings = load_settings(file)
    harness = SchedulerHarness({})
    harness.parts.engine.set_tuning(settings.select_policies())
    assert (settings.select_policies().reads_hosts, harness.parts.engine.has_policy_that_looks_ahead) == (wants, wants)


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (("spread",), "profiles.0.name: found 'spread', the name of a policy; give the profile a name of its own"),
        (
            ("a", "b", "a"),
            "profiles.2.name: found 'a', the name of another profile; give the profile a name of its own",
        ),
    ],
)
def test_a_profile_name_must_differ_from_policies_and_other_profiles(
    tmp_path: Path, names: tuple[str, ...], fault: str
) -> None:
    file = tmp_path / "extender.yaml"
    file.write_text(HEAD + "profiles:\n" + "".join(f"  - {{name: {name}, policy: spread}}\n" for name in names))
    with pytest.raises(SettingsError) as raised:
        load_settings(file)
    assert str(raised.value) == f"{file}:{3 + len(names)}: {fault}"  # two lines of a head, and the list's own


def test_a_pod_is_ranked_by_the_policy_generation_that_filtered_it() -> None:
    desk = SchedulerHarness({"n": [15]})
    engine, generations, request = desk.parts.engine, desk.parts.generations, PodRequest(CardRequest(5), ())
    engine.set_tuning(PolicyTuning(default="binpack"))
    generations.pin_pod("filtered", request)
    engine.set_tuning(PolicyTuning(default="spread"))
    generations.begin_generation()
    chosen = [engine.choose_policy(generations.apply_pin(uid, request)).name for uid in ("filtered", "new")]
    assert chosen == ["binpack", "spread"]


async def test_two_thousand_pods_are_each_ranked_by_one_generation(tmp_path: Path) -> None:
    """The file changes fifty times meanwhile, rules too, and is put into force between any two calls.

    5 units are free on one node and 15 on the other: binpack names the first, spread the second.
    """
    file, random = tmp_path / "extender.yaml", Random(1)
    file.write_text(HEAD)
    api, metrics = FakeKubeApi(), ExtenderMetrics("test")
    options = ExtenderOptions(load_settings(file), "test", source=ConfigurationSource(file))
    service = Extender(options, api, metrics)
    service._readiness.mark_prepared()
    for resource in RESOURCES:
        service._freshness.record_activity(resource)
        service._freshness.mark_listed(resource)
    for name in NAMES:
        service._ledger.update_node(node_facts(name, 15))
    for number in range(30):
        service._ledger.update_node(node_facts(f"other-{number}", 15))  # more than are counted in one turn
    record = Record("vrampack", (Share(10, "GPU-0", 0),))
    service._ledger.update_pod(ledger_pod("held", units=10, node="tight", record=record))
    policies, found = {1: "binpack"}, []
    change = asyncio.create_task(asyncio.sleep(0))
    for number in range(2_000):
        if number % 40 == 0:
            await change
            change = asyncio.create_task(_change_file(service, file, random, policies))
        found.append(await _schedule_pod(service, api, f"pod-{number}", is_bound=number % 20 == 0))
    await change
    assert [(generation, best) for generation, best in found if policies[generation] != BEST[best]] == []
    assert metrics.config_reload_failures._value.get() > 10
    assert max(policies) == service._components.generations.current == metrics.config_generation._value.get() > 20
    assert len({generation for generation, _ in found}) > 20


BEST = {"tight": "binpack", "empty": "spread"}


async def _schedule_pod(service: Extender, api: FakeKubeApi, name: str, *, is_bound: bool) -> tuple[int, str]:
    """The generation that every answer about the pod names, and the node that is ranked first."""
    verbs, body = service._components.verbs, _encode_call(name)
    filtered = verbs.filter(body)
    assert json.loads(filtered.body)["NodeNames"] == NAMES
    await asyncio.sleep(0)
    ranked = verbs.prioritize(body)
    (best,) = [each["Host"] for each in json.loads(ranked.body) if each["Score"] == 10]
    assert ranked.generation == filtered.generation
    await asyncio.sleep(0)
    if is_bound:
        api.pods["default", name] = json.loads(body)["Pod"]
        call = {"PodName": name, "PodNamespace": "default", "PodUID": name, "Node": best}
        bound = await verbs.bind(json.dumps(call).encode())
        assert json.loads(bound.body)["Error"] == ""
        assert bound.generation == filtered.generation
        service._ledger.forget(name, best)
        service._ledger.remove_pod(name)
    proposal = {"Pod": json.loads(body)["Pod"], "NodeNameToMetaVictims": {}}
    preempted = await service._components.preemption.preempt(json.dumps(proposal).encode())
    assert preempted.generation == service._components.generations.current
    service._components.soft_reservations.release_pod(name)
    return filtered.generation, best


async def _change_file(service: Extender, file: Path, random: Random, policies: dict[int, str]) -> None:
    """Another policy, by default or by profile, with or without a rule, or a file with a fault."""
    policy = random.choice(["binpack", "spread", "best"])
    fresh = file.with_suffix(".new")
    by_profile = f"profiles: [{{name: a, policy: {policy}, users: {{namespaces: [default]}}}}]\n"
    rule = random.choice(["", f"rules: {{max_pods_per_card: {random.randint(5, 9)}}}\n"])
    fresh.write_text(HEAD + random.choice([f"policy: {{default: {policy}}}\n", by_profile]) + rule)
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
