"""The scheduler where recordings do not reach: requests byte for byte, restarts, settings, what is not modelled.

What it does with each answer of an extender is in test_scheduler_recordings.py, held to the real one; when it
tries a pod again is in test_scheduler_waiting.py.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from extender.wire.args import ArgsReader
from extender.wire.codec import read_binding_args
from tests.fakes.scripted_extender import ScriptedRule
from tests.simulator.scheduler_harness import SimulatedSchedulerHarness, simulated_scheduler_harness
from tests.support.scheduler_recordings.player import wait_until_async
from tests.support.scheduler_recordings.scenarios import RESOURCE
from vrampack.simulator.scheduling.filters import PREFERENCE

WIRE = Path(__file__).parents[1] / "wire" / "recorded"
NO = {"*": "no card"}


@pytest.fixture
async def town() -> AsyncIterator[SimulatedSchedulerHarness]:
    """No scheduler runs yet."""
    async with simulated_scheduler_harness() as made:
        yield made


@pytest.fixture
async def running(town: SimulatedSchedulerHarness) -> AsyncIterator[SimulatedSchedulerHarness]:
    async with town.scheduling():
        yield town


async def test_calls_have_the_recorded_bodies(running: SimulatedSchedulerHarness) -> None:
    """Same keys in the same order, nulls sent, and no kind on the pod; the extender can read the bodies."""
    running.node("n1")
    running.node("n2")
    running.pod("a", 4)
    await running.wait_until_bound("a")
    asked, ranked, bound = running.extender.bodies
    recorded = json.loads((WIRE / "filter.ncc-true.scheduler-1.36.3.json").read_text())

    assert list(asked) == list(ranked) == list(recorded) == ["Pod", "Nodes", "NodeNames"]
    assert list(asked["Pod"]) == list(recorded["Pod"]) == ["metadata", "spec", "status"]
    assert (asked["Nodes"], asked["NodeNames"]) == (None, ["n1", "n2"])
    asking, names = ArgsReader(RESOURCE).read_args(json.dumps(asked).encode())
    assert (asking.pod.name, names) == ("a", ["n1", "n2"])
    assert list(bound) == list(json.loads((WIRE / "bind.ncc-true_ignoredByScheduler-false.json").read_text()))
    assert read_binding_args(json.dumps(bound).encode()).pod_uid == running.api.get("pods", "a")["metadata"]["uid"]


async def test_one_connection_serves_calls_one_after_another(running: SimulatedSchedulerHarness) -> None:
    running.node("n1")
    for count, name in enumerate(("a", "b", "c"), start=1):
        running.pod(name)
        await running.wait_for_event(count)
    assert len(running.extender.connections) == 1


async def test_binds_run_side_by_side(running: SimulatedSchedulerHarness) -> None:
    running.node("n1")
    running.extender.rules = [ScriptedRule("bind", hang_seconds=0.2)]
    for name in ("a", "b", "c"):
        running.pod(name)
    await wait_until_async(lambda: running.extender.open_calls == 3, "three binds at once")
    await running.wait_until_bound("a", "b", "c")


async def test_a_pod_that_is_leaving_is_not_placed(town: SimulatedSchedulerHarness) -> None:
    town.node("n1")
    town.pod("a")
    town.api.patch("pods", "a", {"metadata": {"finalizers": ["example.com/hold"]}})
    town.api.delete("pods", "a")
    async with town.scheduling():
        town.pod("b")
        await town.wait_until_bound("b")
    assert [call.pod for call in town.extender.calls] == ["b", "b"]


async def test_a_finished_pod_that_was_never_bound_is_not_placed(town: SimulatedSchedulerHarness) -> None:
    town.node("n1")
    town.pod("a")
    town.api.patch("pods", "a", {"status": {"phase": "Failed"}}, is_status=True)
    async with town.scheduling():
        town.pod("b")
        await town.wait_until_bound("b")
    assert [call.pod for call in town.extender.calls] == ["b", "b"]


async def test_a_restarted_scheduler_uses_the_state_of_the_api_server(town: SimulatedSchedulerHarness) -> None:
    town.node("n1", units=8)
    async with town.scheduling():
        town.pod("a", 8)
        await town.wait_until_bound("a")
    town.pod("b", 8)
    async with town.scheduling():
        await town.refused("b", "Insufficient")
        town.api.delete("pods", "a", grace_seconds=0)
        await town.wait_until_bound("b")


async def test_changes_that_were_compacted_away_are_listed_again(running: SimulatedSchedulerHarness) -> None:
    """A deleted node is no candidate, and a deleted pod holds nothing."""
    running.node("n1", units=4)
    running.node("n2", units=4)
    running.pod("a")
    running.pod("b")
    await running.wait_until_bound("a", "b")
    assert running.node_of("a") == "n1"
    running.api.delete("pods", "b", grace_seconds=0)
    running.api.delete("nodes", "n2")
    running.pod("c")
    running.api.compact()  # before the scheduler had a turn
    await running.refused("c", "0/1 nodes are available: 1 Insufficient")
    running.api.delete("pods", "a", grace_seconds=0)
    running.api.compact()
    await running.wait_until_bound("c")


async def test_an_unreachable_extender_is_named_in_the_condition(running: SimulatedSchedulerHarness) -> None:
    running.node("n1")
    await running.extender.stop()
    running.pod("a")
    await wait_until_async(lambda: bool(running.api.get("pods", "a")["status"].get("conditions")), "a fails")
    url = f"{running.extender.url}/filter"
    assert running.message("a") == (
        f'Post "{url}": dial tcp 127.0.0.1:{running.extender.port}: connect: connection refused'
    )


async def test_a_resource_that_the_extender_alone_counts_is_not_counted(town: SimulatedSchedulerHarness) -> None:
    town.node("n1", units=0)
    async with town.scheduling(ignored_resources=frozenset([RESOURCE])):
        town.pod("a", 4)
        await town.wait_until_bound("a")


async def test_without_managed_resources_every_pod_is_sent(town: SimulatedSchedulerHarness) -> None:
    town.node("n1")
    async with town.scheduling(managed_resources=frozenset()):
        town.pod("a", None)
        await town.wait_until_bound("a")
    assert [call.verb for call in town.extender.calls_of("a")] == ["filter", "bind"]


async def test_pods_without_the_resource_are_placed_without_the_extender(running: SimulatedSchedulerHarness) -> None:
    running.node("n2")
    running.node("n1")
    running.pod("a", None)
    await running.wait_until_bound("a")
    assert (running.extender.calls, running.node_of("a")) == ([], "n1")  # the first name among equals


async def test_verbs_that_are_not_set_are_not_called(town: SimulatedSchedulerHarness) -> None:
    town.node("n2")
    town.node("n1")
    async with town.scheduling(filter_verb="", prioritize_verb="", bind_verb=""):
        town.pod("a")
        await town.wait_until_bound("a")
    assert (town.extender.calls, town.node_of("a")) == ([], "n1")  # the first name among equals


UNMODELLED = {
    "a preference": (
        {"affinity": {"nodeAffinity": {PREFERENCE: [{"weight": 1}]}}},
        f"spec.affinity.nodeAffinity.{PREFERENCE}",
    ),
    "spread": ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "spec.topologySpreadConstraints"),
    "claims": ({"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims"),
    "not readable": ({"tolerations": 7}, "spec"),
    "volume": ({"volumes": [{"name": "v", "persistentVolumeClaim": {}}]}, "spec.volumes[v].persistentVolumeClaim"),
    "no quantity": (
        {"containers": [{"name": "m", "resources": {"requests": {"cpu": "much"}}}]},
        "spec.containers[m].resources.requests[cpu]",
    ),
}


@pytest.mark.parametrize(("spec", "field"), UNMODELLED.values(), ids=UNMODELLED)
async def test_unsupported_features_are_refused_by_name(
    running: SimulatedSchedulerHarness, spec: dict[str, Any], field: str
) -> None:
    running.node("n1")
    running.pod("a", **spec)
    await wait_until_async(lambda: bool(running.api.get("pods", "a")["status"].get("conditions")), "a is refused")
    assert running.message("a") == (f"0/1 nodes are available: {field} is not modelled by the embedded scheduler.")
    assert running.extender.calls == []


async def test_node_affinity_and_ports_of_the_host_are_modelled(running: SimulatedSchedulerHarness) -> None:
    on_n1 = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [on_n1]}}
    spec: dict[str, Any] = {
        "affinity": {"nodeAffinity": required},
        "containers": [{"name": "m", "ports": [{"hostPort": 80}]}],
    }
    running.node("n0")
    running.node("n1")
    running.pod("a", **spec)
    await running.wait_until_bound("a")
    running.pod("b", **spec)
    await wait_until_async(lambda: bool(running.api.get("pods", "b")["status"].get("conditions")), "b is refused")
    assert running.message("b") == (
        "0/2 nodes are available: 1 node(s) didn't have free ports for the requested pod ports, "
        "1 node(s) didn't match Pod's node affinity/selector."
    )


async def test_pods_with_harmless_volumes_are_scheduled(running: SimulatedSchedulerHarness) -> None:
    running.node("n1")
    running.pod("a", volumes=[{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "c"}}])
    await running.wait_until_bound("a")


async def test_the_condition_of_a_refused_pod_has_all_its_fields(running: SimulatedSchedulerHarness) -> None:
    running.node("n1")
    running.extender.rules = [ScriptedRule("filter", refuse=NO)]
    running.pod("a")
    await running.wait_for_call("a", 2)
    (condition,) = running.api.get("pods", "a")["status"]["conditions"]
    assert condition == {
        "type": "PodScheduled",
        "observedGeneration": 1,
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": "2030-01-01T00:00:00Z",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 no card.",
    }


async def test_events_name_pod_and_scheduler_once_per_text(running: SimulatedSchedulerHarness) -> None:
    running.node("n1")
    running.extender.rules = [ScriptedRule("filter", refuse=NO)]
    running.pod("a")
    await running.wait_for_call("a", 2)
    running.extender.rules = []
    running.node("n2")
    await running.wait_until_bound("a")
    await running.wait_for_event(2)
    refused, scheduled = running.api.list_events()
    uid = running.api.get("pods", "a")["metadata"]["uid"]
    assert refused["involvedObject"]["uid"] == scheduled["involvedObject"]["uid"] == uid
    assert (refused["type"], refused["reason"], refused["action"]) == ("Warning", "FailedScheduling", "Scheduling")
    assert (scheduled["type"], scheduled["reason"], scheduled["action"]) == ("Normal", "Scheduled", "Binding")
    assert refused["reportingComponent"] == "vrampack"
