"""For which pods an autoscaler is asked for a node, by which placeholder, and when the placeholder goes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from extender.autoscaling.autoscaling import Autoscaling
from extender.autoscaling.placeholders import AGAIN, MAX_SECONDS, REFUSED_SECONDS, SHORT_SECONDS
from extender.autoscaling.plan_pace import PLAN_INTERVAL_SECONDS
from extender.events import ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.scheduling.bind_outcome import PLACEHOLDER_REFUSAL
from extender.settings import AutoscalingSettings, load_settings
from extender.state.ledger import Ledger
from tests.extender.scheduler_harness import SchedulerHarness
from tests.fakes.api import FakeKubeApi
from tests.support.builders import UNIT_MIB, ledger_pod, node_facts
from tests.support.scripted_readiness import ScriptedReadiness
from vrampack.cards import well_known
from vrampack.cards.node import Share
from vrampack.cards.records import Record
from vrampack.kube.api_caller import Resource
from vrampack.kube.errors import RefusedError
from vrampack.kube.objects import NodeObject, PodObject, to_pod

Json = Any
START = 1_000_000.0
UNITS = 12
"""Fit no card of 8 and 8 free units, by whose sum they fit."""
OTHER_UNITS = 13
UNSCHEDULABLE = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
AGENT = {"matchExpressions": [{"key": well_known.ENFORCEMENT, "operator": "DoesNotExist"}]}


class PlaceholderApi(FakeKubeApi):
    """Makes and deletes placeholders, unless it is told to refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.placeholders: dict[str, Json] = {}
        self.nodes: dict[str, Json] = {}
        self.refusals = 0
        self.stamp = ""

    async def get_pod_bytes(self, namespace: str, name: str, *, timeout_seconds: float) -> bytes | None:  # noqa: ARG002 - the real one's shape
        pod = self.pods.get((namespace, name))
        return None if pod is None else json.dumps(pod).encode()

    async def list_page(self, resource: Resource, **query: Any) -> bytes:  # noqa: ANN401 - the real one's
        name = query["field_selector"].partition("=")[2]
        kind, items = ("NodeList", [self.nodes[name]]) if resource == "nodes" else ("PodList", [])
        return json.dumps(
            {"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "1"}, "items": items}
        ).encode()

    async def create_pod(self, namespace: str, pod: Mapping[str, object], *, timeout_seconds: float) -> None:  # noqa: ARG002 - the real one's shape
        if self.refusals:
            self.refusals -= 1
            raise RefusedError(403, "Forbidden", "no such right")
        made: Json = json.loads(json.dumps(pod))
        assert made["metadata"]["namespace"] == namespace
        assert made["metadata"]["name"] not in self.placeholders
        made["metadata"]["creationTimestamp"] = self.stamp
        self.placeholders[made["metadata"]["name"]] = made

    async def delete_pod(self, namespace: str, name: str, uid: str, *, timeout_seconds: float) -> None:  # noqa: ARG002 - the real one's shape
        assert (namespace, uid) == (well_known.PLACEHOLDER_NAMESPACE, name)
        del self.placeholders[name]

    async def patch_pod_condition(
        self,
        namespace: str,  # noqa: ARG002 - the real one's shape
        name: str,
        uid: str,  # noqa: ARG002
        condition: Mapping[str, object],
        *,
        timeout_seconds: float,  # noqa: ARG002
    ) -> PodObject:
        self.placeholders[name]["status"] = {"conditions": [condition]}
        return PodObject()


class Leader:
    is_held = True


class PlaceholderHarness:
    """A node with two cards of 16 units, 8 used of each; whatever is written is shown by the watch before the next round."""

    def __init__(self, api: PlaceholderApi | None = None, **settings: object) -> None:
        self.now = START
        self.api = api or PlaceholderApi()
        self.metrics = ExtenderMetrics("test")
        self.ledger = Ledger(unit_mib=UNIT_MIB, clock=lambda: self.now)
        self.lease = Leader()
        autoscaling = AutoscalingSettings.model_validate({"placeholders": "karpenter"} | settings)
        self.autoscaling = Autoscaling(
            self.ledger,
            self.api,
            ExtenderEventRecorder(self.api, self.metrics, clock=lambda: self.now, now=lambda: self.now),
            self.metrics,
            lease=self.lease,
            readiness=ScriptedReadiness(),
            settings=load_settings(None).model_copy(update={"autoscaling": autoscaling}),
            clock=lambda: self.now,
            cpu_clock=lambda: 0.0,
            now=lambda: self.now,
        )
        self._shown: set[str] = set()
        self.add_node("n", used=8)

    def add_node(self, name: str, *, used: int = 0, **labels: str) -> None:
        """A node with an agent."""
        self.ledger.update_node(replace(node_facts(name, 16, 16), offered_units=32, injection="cdi"))
        self.show_agent(name, **labels)
        for card in range(2 if used else 0):
            self.hold(name, card, used)

    def show_agent(self, name: str, **labels: str) -> None:
        """The watch shows the node, whose agent has not said what cards it has."""
        labels |= {well_known.ENFORCEMENT: "native"}
        metadata = {"name": name, "labels": labels, "creationTimestamp": self._stamp()}
        allocatable = {well_known.MEMORY_RESOURCE: "32", "cpu": "8", "pods": "110"}
        self.api.nodes[name] = node = {"metadata": metadata, "status": {"allocatable": allocatable}}
        self.autoscaling.update_node(msgspec.json.decode(json.dumps(node), type=NodeObject))

    def add_pod(self, name: str, units: int = UNITS, *, failed: bool = True, **fields: Json) -> None:
        """A pod that a scheduler could not place."""
        quantities = {well_known.MEMORY_RESOURCE: str(units), "cpu": "1500m"}
        spec = {"containers": [{"name": "main", "resources": {"limits": quantities, "requests": quantities}}]}
        metadata = {"name": name, "namespace": "default", "uid": name, "creationTimestamp": self._stamp()}
        metadata |= fields.pop("metadata", {})
        status = {"conditions": UNSCHEDULABLE} if failed else {}
        pod = {"metadata": metadata, "spec": spec | fields, "status": status}
        self.api.pods["default", name] = pod
        self._show(pod)

    def hold(self, node: str, card: int, units: int) -> None:
        """A pod has so many units of the card."""
        record = Record("vrampack", (Share(units, f"GPU-{card}", card),))
        self.ledger.update_pod(ledger_pod(f"{node}-{card}", units=units, node=node, record=record))

    def end_pod(self, name: str) -> None:
        for watcher in self.autoscaling.pod_watchers:
            watcher.remove_pod(name)
        self.ledger.remove_pod(name)

    async def at(self, *seconds: float) -> list[str]:
        """The placeholders that there are after rounds at these times."""
        for each in seconds:
            self.now = START + each
            self.api.stamp = self._stamp()
            self._show_placeholders()
            await self.autoscaling.placeholders.check_shapes()
        return sorted(self.api.placeholders)

    def count(self, result: str) -> float | None:
        return self.metrics.registry.get_sample_value("vrampack_placeholders_total", {"result": result})

    def _show_placeholders(self) -> None:
        for name in self._shown - self.api.placeholders.keys():
            self.autoscaling.placeholders.remove_pod(name)
        self._shown = set(self.api.placeholders)
        for name, made in self.api.placeholders.items():
            self._show(made | {"metadata": made["metadata"] | {"uid": name}})

    def _show(self, obj: Json) -> None:
        read = msgspec.json.decode(json.dumps(obj), type=PodObject)
        pod = to_pod(read)
        for watcher in self.autoscaling.pod_watchers:
            watcher.update_pod(pod, read.spec)
        if not pod.is_placeholder:
            self.ledger.update_pod(pod)

    def _stamp(self) -> str:
        return datetime.fromtimestamp(self.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_a_pod_that_sums_fit_and_no_card_gets_a_placeholder_after_a_while() -> None:
    world = PlaceholderHarness()
    world.add_pod("a", nodeSelector={"pool": "gpu"}, tolerations=[{"operator": "Exists"}])
    world.add_node("m", used=8, pool="gpu")
    assert await world.at(0.0, SHORT_SECONDS - 1) == []
    (name,) = await world.at(SHORT_SECONDS)
    spec = world.api.placeholders[name]["spec"]
    asked = {"cpu": "1500m", well_known.MEMORY_RESOURCE: str(UNITS)}
    assert spec["containers"][0]["resources"] == {"limits": asked, "requests": asked}
    assert (spec["nodeSelector"], spec["tolerations"]) == ({"pool": "gpu"}, [{"operator": "Exists"}])
    assert spec["schedulerName"] == well_known.PLACEHOLDER_SCHEDULER
    assert list_terms(spec) == [AGENT]
    assert await world.at(SHORT_SECONDS + 0.1) == [name]
    assert UNSCHEDULABLE[0].items() <= world.api.placeholders[name]["status"]["conditions"][0].items()


OTHERS: dict[str, Json] = {
    "its scheduler has not said that it fits nowhere": {"failed": False},
    "larger than the sum of any node": {"units": 17},
    "of a model that no card has": {"metadata": {"annotations": {well_known.CARD_MODEL: "H100"}}},
    "names its card": {"metadata": {"annotations": {well_known.CARD_UUID: "GPU-0"}}},
    "of a group": {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}},
    "gated": {"schedulingGates": [{"name": "g"}]},
    "depends on other pods": {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
    "may not use the node": {"nodeSelector": {"pool": "other"}},
    "fits a card": {"units": 8},
}


@pytest.mark.parametrize("fields", OTHERS.values(), ids=OTHERS)
async def test_for_no_other_pod_is_a_placeholder_made(fields: Json) -> None:
    world = PlaceholderHarness()
    world.add_pod("a", **fields)
    assert await world.at(0.0, SHORT_SECONDS) == []


async def test_where_the_node_lacks_cpu_the_autoscaler_adds_one_by_itself() -> None:
    world = PlaceholderHarness()
    world.api.nodes["n"]["status"]["allocatable"]["cpu"] = "1"
    world.add_pod("a")
    assert await world.at(0.0, SHORT_SECONDS) == []
    world.api.nodes["n"]["status"]["allocatable"]["cpu"] = "2"
    assert len(await world.at(SHORT_SECONDS + AGAIN.first_seconds)) == 1


async def test_pods_of_one_shape_have_one_placeholder_which_goes_with_the_last_of_them() -> None:
    world = PlaceholderHarness()
    for name in ("a", "b"):
        world.add_pod(name)
    (made,) = await world.at(0.0, SHORT_SECONDS)
    world.end_pod("a")
    assert await world.at(40.0) == [made]
    world.end_pod("b")
    assert await world.at(50.0) == []
    assert world.count("served") == 1


async def test_a_placeholder_goes_when_a_card_has_room() -> None:
    world = PlaceholderHarness()
    world.add_pod("a")
    await world.at(0.0, SHORT_SECONDS)
    world.hold("n", 0, 4)
    assert await world.at(40.0) == []


async def test_a_placeholder_goes_at_once_when_a_new_node_has_an_agent_and_no_other_one_follows_soon() -> None:
    world = PlaceholderHarness()
    world.add_pod("a")
    (made,) = await world.at(0.0, SHORT_SECONDS)
    world.now = START + 100.0
    world.show_agent("new")
    assert await world.at(100.1, 100.1 + AGAIN.first_seconds - 1) == []
    assert world.count("node_came") == 1
    world.add_node("new", used=8)
    assert await world.at(100.2 + AGAIN.first_seconds) == [made]


async def test_without_a_node_a_placeholder_expires_and_the_next_one_comes_later() -> None:
    world = PlaceholderHarness()
    world.add_pod("a")
    (made,) = await world.at(0.0, SHORT_SECONDS)
    ended = SHORT_SECONDS + MAX_SECONDS + 1
    assert await world.at(ended - 2) == [made]
    assert await world.at(ended, ended + AGAIN.first_seconds - 1) == []
    assert world.count("expired") == 1
    assert await world.at(ended + AGAIN.first_seconds) == [made]


async def test_once_the_first_pod_waits_no_more_the_next_one_need_not_wait_as_long() -> None:
    world = PlaceholderHarness()
    for name in ("a", "b"):
        world.add_pod(name)
    (made,) = await world.at(0.0, SHORT_SECONDS)
    world.now = START + 100.0
    world.add_node("new", used=8)
    assert await world.at(101.0) == []
    world.end_pod("a")
    assert await world.at(101.0 + PLAN_INTERVAL_SECONDS) == [made]


async def test_at_most_so_many_are_made_in_an_hour() -> None:
    world = PlaceholderHarness(max_placeholders_per_hour=1)
    for name, units in (("a", UNITS), ("b", OTHER_UNITS)):
        world.add_pod(name, units)
    first = await world.at(0.0, SHORT_SECONDS)
    assert len(first) == 1
    assert await world.at(SHORT_SECONDS + 3599.0) == []  # it has expired
    assert len(await world.at(SHORT_SECONDS + 3600.0)) == 1


async def test_another_extender_goes_on_from_the_placeholders_that_there_are() -> None:
    before = PlaceholderHarness()
    before.add_pod("a")
    made = await before.at(0.0, SHORT_SECONDS)
    after = PlaceholderHarness(before.api)
    after.add_pod("a")
    assert await after.at(SHORT_SECONDS, 3 * SHORT_SECONDS) == made


@pytest.mark.parametrize("hindrance", ["not the leader", "never"])
async def test_who_makes_no_placeholders(hindrance: str) -> None:
    world = PlaceholderHarness(placeholders="never" if hindrance == "never" else "karpenter")
    world.lease.is_held = hindrance != "not the leader"
    world.add_pod("a")
    assert await world.at(0.0, SHORT_SECONDS) == []


async def test_where_none_are_wanted_any_more_those_that_there_are_are_deleted() -> None:
    before = PlaceholderHarness()
    before.add_pod("a")
    await before.at(0.0, SHORT_SECONDS)
    after = PlaceholderHarness(before.api, placeholders="never", protect="never")
    assert not after.autoscaling.needs_lease()
    assert await after.at(40.0) == []


async def test_the_cluster_autoscaler_is_told_the_names_of_the_hosts_whose_sums_fit() -> None:
    world = PlaceholderHarness(placeholders="cluster-autoscaler")
    world.show_agent("n", **{"kubernetes.io/hostname": "host-of-n"})
    world.add_pod("a")
    (name,) = await world.at(0.0, SHORT_SECONDS)
    hosts = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["host-of-n"]}
    assert list_terms(world.api.placeholders[name]["spec"]) == [{"matchExpressions": [hosts]}]


async def test_each_term_of_a_pods_own_affinity_excludes_the_nodes_of_today() -> None:
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    own = {"nodeSelectorTerms": [{"matchExpressions": [zone]}, {"matchExpressions": [zone, zone]}]}
    world = PlaceholderHarness()
    world.show_agent("n", zone="a")
    world.add_pod("a", affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": own}})
    (name,) = await world.at(0.0, SHORT_SECONDS)
    (agent,) = AGENT["matchExpressions"]
    terms = [{"matchExpressions": [zone, agent]}, {"matchExpressions": [zone, zone, agent]}]
    assert list_terms(world.api.placeholders[name]["spec"]) == terms


async def test_after_a_refusal_nothing_is_tried_for_a_while() -> None:
    world = PlaceholderHarness()
    world.api.refusals = 1
    for name, units in (("a", UNITS), ("b", OTHER_UNITS)):
        world.add_pod(name, units)
    assert await world.at(0.0, SHORT_SECONDS, SHORT_SECONDS + REFUSED_SECONDS - 1) == []
    assert len(await world.at(SHORT_SECONDS + REFUSED_SECONDS)) == 1


async def test_a_scheduler_that_asks_about_a_placeholder_gets_no_node_for_it() -> None:
    desk = SchedulerHarness({"n": [16]})
    spec = {"schedulerName": well_known.PLACEHOLDER_SCHEDULER}
    answer = json.loads(desk.parts.verbs.filter(desk.encode_call("p", spec=spec)).body)
    assert (answer["NodeNames"], answer["Error"]) == ([], PLACEHOLDER_REFUSAL)
    assert await desk.bind("p", "n", spec) == f"{PLACEHOLDER_REFUSAL}; nothing was bound"


def list_terms(spec: Json) -> Json:
    return spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
