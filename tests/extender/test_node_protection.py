"""When nodes are written to be left alone by autoscalers, when that is taken back, and what is never written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from extender.autoscaling.autoscaling import Autoscaling
from extender.autoscaling.node_marks import AUTOSCALER_KEYS
from extender.autoscaling.node_protection import LIFT_SECONDS
from extender.autoscaling.node_rules import NodeRules
from extender.autoscaling.plan_pace import PLAN_INTERVAL_SECONDS
from extender.events import ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.settings import AutoscalingSettings, load_settings
from extender.state.ledger import Ledger
from tests.fakes.api import FakeKubeApi
from tests.support.builders import UNIT_MIB, ledger_pod, node_facts
from tests.support.scripted_readiness import ScriptedReadiness
from vrampack.cards import well_known
from vrampack.cards.node import Share
from vrampack.cards.records import Record
from vrampack.kube.errors import RefusedError
from vrampack.kube.objects import NodeObject, PodSpec

KEPT = {**dict.fromkeys(AUTOSCALER_KEYS, "true"), well_known.KEPT_FROM_AUTOSCALERS: "1970-01-01T00:00:00Z"}
FREE = dict.fromkeys(KEPT)
ENDED = {**dict.fromkeys(AUTOSCALER_KEYS), well_known.KEPT_FROM_AUTOSCALERS: "ended"}
VERSION = "7"
KARPENTER = {"karpenter.sh/nodepool": "gpu"}

Annotations = Mapping[str, str | None]


class ScriptedNodeApi(FakeKubeApi):
    """Merges annotations, as it is told to answer."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Exception] = []
        self.written: list[tuple[str, Annotations]] = []
        self.refused: set[str] = set()

    async def patch_node(self, name: str, body: Mapping[str, object], *, timeout_seconds: float) -> None:  # noqa: ARG002 - the real one's shape
        if self.answers:
            raise self.answers.pop(0)
        patch: Any = body
        assert patch.keys() == {"metadata"}
        assert patch["metadata"].keys() == {"annotations", "resourceVersion"}
        if patch["metadata"]["resourceVersion"] != VERSION:
            raise RefusedError(409, "Conflict", "the object has been modified")
        if name in self.refused:
            raise RefusedError(403, "Forbidden", "a policy of somebody else")
        self.written.append((name, patch["metadata"]["annotations"]))


class Leader:
    is_held = True


class ProtectionHarness:
    """Nodes of two cards of 8 units, 5 used of each: their pods fit elsewhere by the sums, on no card."""

    def __init__(self, *names: str, labels: Mapping[str, str] = KARPENTER, **settings: object) -> None:
        self.now = 0.0
        self.api = ScriptedNodeApi()
        self.metrics = ExtenderMetrics("test")
        self.ledger = Ledger(unit_mib=UNIT_MIB, clock=lambda: self.now)
        self.lease = Leader()
        self.readiness = ScriptedReadiness()
        self.labels = labels
        self.autoscaling = Autoscaling(
            self.ledger,
            self.api,
            ExtenderEventRecorder(self.api, self.metrics, clock=lambda: self.now, now=lambda: self.now),
            self.metrics,
            lease=self.lease,
            readiness=self.readiness,
            settings=load_settings(None).model_copy(
                update={"autoscaling": AutoscalingSettings.model_validate(settings)}
            ),
            clock=lambda: self.now,
            cpu_clock=lambda: 0.0,
            now=lambda: self.now,
        )
        self.protection = self.autoscaling.protection
        for name in names:
            self.add_node(name, used=[5, 5])

    def add_node(self, name: str, used: list[int], annotations: Annotations | None = None) -> None:
        self.ledger.update_node(replace(node_facts(name, *[8] * len(used)), offered_units=8 * len(used)))
        self.show_node(name, annotations or {}, units=8 * len(used))
        for card, units in enumerate(used):
            uid = f"{name}-{card}"
            if units:
                record = Record("vrampack", (Share(units, f"GPU-{card}", card),))
                pod = ledger_pod(uid, units=units, node=name, record=record)
                self.ledger.update_pod(pod)
                for watcher in self.autoscaling.pod_watchers:
                    watcher.update_pod(pod, PodSpec())

    def show_node(self, name: str, annotations: Annotations, units: int = 16, version: str = VERSION) -> None:
        """The watch shows the node."""
        given = {key: value for key, value in annotations.items() if value is not None}
        metadata = {"name": name, "labels": self.labels, "annotations": given, "resourceVersion": version}
        node = {"metadata": metadata, "status": {"allocatable": {well_known.MEMORY_RESOURCE: str(units)}}}
        read = msgspec.json.decode(json.dumps(node), type=NodeObject)
        self.autoscaling.update_node(read)

    async def at(self, *seconds: float) -> list[tuple[str, Annotations]]:
        """What was written by rounds at these times."""
        self.api.written.clear()
        for self.now in seconds:
            await self.protection.check_nodes()
        return list(self.api.written)


async def test_stranded_nodes_are_kept_and_freed_a_minute_after_their_pods_find_cards() -> None:
    world = ProtectionHarness("a", "b")
    assert await world.at(0.0) == [("a", KEPT), ("b", KEPT)]
    world.add_node("c", used=[0, 0, 0, 0])
    found = 0.0 + PLAN_INTERVAL_SECONDS
    assert await world.at(1.0, found, found + LIFT_SECONDS - 1) == []
    assert await world.at(found + LIFT_SECONDS) == [("a", FREE), ("b", FREE)]


async def test_a_node_that_is_stranded_again_within_the_minute_stays_kept() -> None:
    world = ProtectionHarness("a", "b")
    await world.at(0.0)
    world.add_node("c", used=[0, 0, 0, 0])
    await world.at(10.0)
    world.ledger.remove_node("c")
    assert await world.at(20.0, 10.0 + LIFT_SECONDS) == []


@pytest.mark.parametrize(
    ("protect", "labels", "is_kept"),
    [
        ("auto", KARPENTER, True),
        ("auto", {}, False),
        ("always", {}, True),
        ("never", KARPENTER, False),
    ],
)
async def test_where_nodes_are_kept(protect: str, labels: Mapping[str, str], *, is_kept: bool) -> None:
    world = ProtectionHarness("a", "b", protect=protect, labels=labels)
    assert bool(await world.at(0.0)) == is_kept
    assert world.protection.needs_lease() == is_kept


def test_where_no_node_is_ever_kept_the_rules_of_nodes_are_not_followed() -> None:
    world = ProtectionHarness("a", "b", protect="never")
    assert not [watcher for watcher in world.autoscaling.pod_watchers if isinstance(watcher, NodeRules)]


async def test_at_most_two_nodes_are_written_in_a_round() -> None:
    world = ProtectionHarness("a", "b", "c")
    assert [name for name, _ in await world.at(0.0)] == ["a", "b"]
    assert [name for name, _ in await world.at(1.0)] == ["c"]


@pytest.mark.parametrize("key", AUTOSCALER_KEYS)
async def test_a_node_on_which_somebody_else_set_a_key_is_left_alone(key: str) -> None:
    world = ProtectionHarness("b")
    world.add_node("a", used=[5, 5], annotations={key: "false"})
    assert [name for name, _ in await world.at(0.0)] == ["b"]
    world.add_node("c", used=[0] * 4)
    assert [name for name, _ in await world.at(10.0, 100.0)] == ["b"]


async def test_after_the_longest_time_a_node_may_go_and_is_not_kept_again_before_its_pods_find_cards() -> None:
    world = ProtectionHarness("a", "b", max_hours=1)
    await world.at(0.0)
    assert await world.at(3599.0) == []
    assert await world.at(3600.0) == [("a", ENDED), ("b", ENDED)]
    world.show_node("a", ENDED)
    assert await world.at(3700.0, 9999.0) == []
    world.add_node("c", used=[0] * 4)
    assert await world.at(10_010.0, 10_100.0) == [("a", FREE), ("b", FREE)]


async def test_keys_that_somebody_took_away_are_not_set_again() -> None:
    world = ProtectionHarness("a", "b")
    await world.at(0.0)
    world.show_node("a", {well_known.KEPT_FROM_AUTOSCALERS: KEPT[well_known.KEPT_FROM_AUTOSCALERS]})
    assert await world.at(10.0, 100.0) == []


async def test_a_new_process_goes_on_from_what_the_nodes_say() -> None:
    world = ProtectionHarness(labels={}, max_hours=1)
    world.add_node("a", used=[5, 5], annotations=KEPT)
    world.add_node("b", used=[5, 5], annotations=ENDED)
    world.add_node("c", used=[5, 5])
    assert await world.at(10.0) == [("c", {**KEPT, well_known.KEPT_FROM_AUTOSCALERS: "1970-01-01T00:00:10Z"})]
    assert await world.at(3600.0) == [("a", ENDED)]


async def test_where_nothing_is_to_be_kept_any_more_everything_is_taken_back() -> None:
    world = ProtectionHarness(protect="never")
    world.add_node("a", used=[5, 5], annotations=KEPT)
    world.add_node("b", used=[5, 5], annotations=ENDED)
    assert await world.at(0.0) == [("a", FREE), ("b", FREE)]
    assert not world.protection.needs_lease()


@pytest.mark.parametrize("hindrance", ["not the leader", "not ready"])
async def test_only_a_leader_that_is_ready_writes(hindrance: str) -> None:
    world = ProtectionHarness("a", "b")
    world.lease.is_held = hindrance != "not the leader"
    world.readiness.problem = "stopping" if hindrance == "not ready" else ""
    assert await world.at(0.0, 100.0) == []


async def test_nothing_is_written_while_the_api_server_sends_calls_away() -> None:
    world = ProtectionHarness("a", "b")
    world.api.answers = [RefusedError(429, "TooManyRequests", "later", retry_after_seconds=30.0)]
    assert await world.at(0.0, 1.0, 29.0) == []
    assert await world.at(46.0) == [
        (name, {**KEPT, well_known.KEPT_FROM_AUTOSCALERS: "1970-01-01T00:00:46Z"}) for name in ("a", "b")
    ]


async def test_a_node_that_may_not_be_written_keeps_no_other_from_it() -> None:
    world = ProtectionHarness("a", "b", "c", "d")
    world.api.refused = {"a"}
    assert {name for name, _ in await world.at(*map(float, range(10)))} == {"b", "c", "d"}
    world.api.refused = set()
    assert [name for name, _ in await world.at(600.0)] == ["a"]


async def test_a_node_that_somebody_has_written_since_is_looked_at_again() -> None:
    world = ProtectionHarness("a", "b")
    world.show_node("a", {}, version="6")
    assert [name for name, _ in await world.at(0.0, 1.0)] == ["b"]
    world.show_node("a", {})
    assert [name for name, _ in await world.at(600.0)] == ["a"]
