"""For which pods an autoscaler is asked for a node, by which placeholder, and when the placeholder goes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from extender.autoscaling.card_shortages import MAX_SHORTAGES
from extender.autoscaling.node_rules import HOSTNAME
from extender.autoscaling.placeholders import (
    AGAIN,
    LOOK_INTERVAL_SECONDS,
    MAX_SECONDS,
    REFUSED_SECONDS,
    SHORT_SECONDS,
    WATCH_INTERVAL_SECONDS,
)
from extender.autoscaling.plan_pace import PLAN_INTERVAL_SECONDS
from extender.autoscaling.stranded_nodes import VISITS_PER_SLICE
from extender.scheduling.bind_outcome import PLACEHOLDER_REFUSAL
from tests.extender.placeholder_harness import START, UNITS, UNSCHEDULABLE, Json, PlaceholderHarness
from tests.extender.scheduler_harness import SchedulerHarness
from vrampack.cards import well_known
from vrampack.kube.api_caller import Resource

OTHER_UNITS = 13
AGENT = {"matchExpressions": [{"key": well_known.ENFORCEMENT, "operator": "DoesNotExist"}]}


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


def require(*terms: Json) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


OTHERS: dict[str, Json] = {
    "its scheduler has not said that it fits nowhere": {"failed": False},
    "larger than the sum of any node": {"units": 17},
    "of a model that no card has": {"metadata": {"annotations": {well_known.CARD_MODEL: "H100"}}},
    "names its card": {"metadata": {"annotations": {well_known.CARD_UUID: "GPU-0"}}},
    "of a group": {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}},
    "gated": {"schedulingGates": [{"name": "g"}]},
    "depends on other pods": {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
    "names its node": {
        "affinity": require({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]})
    },
    "names a label that no new node may have": {"nodeSelector": {well_known.ENFORCEMENT: "native"}},
    "names the host": {
        "affinity": require({"matchExpressions": [{"key": HOSTNAME, "operator": "NotIn", "values": ["m"]}]})
    },
    "may not use the node": {"nodeSelector": {"pool": "other"}},
    "fits a card": {"units": 8},
}


@pytest.mark.parametrize("fields", OTHERS.values(), ids=OTHERS)
async def test_for_no_other_pod_is_a_placeholder_made(fields: Json) -> None:
    world = PlaceholderHarness()
    world.add_pod("a", **fields)
    assert await world.at(0.0, SHORT_SECONDS) == []


async def test_shapes_that_no_new_node_helps_keep_none_from_a_younger_one() -> None:
    world = PlaceholderHarness()
    for number in range(MAX_SHORTAGES):
        world.add_pod(f"a{number}", nodeSelector={"pool": f"none-{number}"})
    world.add_pod("b")
    assert len(await world.at(0.0, SHORT_SECONDS)) == 1


async def test_a_placeholder_goes_between_two_slices_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    world = PlaceholderHarness()
    for number in range(2 * VISITS_PER_SLICE):
        world.add_pod(f"a{number}")
    await world.at(0.0, SHORT_SECONDS)
    standing: list[int] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        standing.append(len(world.api.placeholders))
        await real(seconds)
        world.now += WATCH_INTERVAL_SECONDS
        world.show_agent("new")

    monkeypatch.setattr(asyncio, "sleep", sleep)
    await world.at(SHORT_SECONDS + PLAN_INTERVAL_SECONDS)
    assert standing == [1, 0, 0]  # twice for the pods, once for their shape


async def test_a_placeholder_goes_while_nodes_are_read_for_another_one() -> None:
    world = PlaceholderHarness()
    world.add_node("m", used=8)
    world.add_pod("a")
    await world.at(0.0, SHORT_SECONDS)
    world.add_pod("b", OTHER_UNITS, cpu="1000")
    standing: list[int] = []
    real = world.api.list_page

    async def list_page(resource: Resource, **query: Any) -> bytes:  # noqa: ANN401 - the real one's
        standing.append(len(world.api.placeholders))
        world.now += WATCH_INTERVAL_SECONDS
        world.show_agent("new")
        return await real(resource, **query)

    world.api.list_page = list_page  # type: ignore[method-assign]
    await world.at(2 * SHORT_SECONDS, 3 * SHORT_SECONDS)
    assert (standing[0], standing[-1]) == (1, 0)


async def test_where_the_node_lacks_cpu_the_autoscaler_adds_one_by_itself() -> None:
    world = PlaceholderHarness()
    world.api.nodes["n"]["status"]["allocatable"]["cpu"] = "1"
    world.add_pod("a")
    assert await world.at(0.0, SHORT_SECONDS) == []
    world.api.nodes["n"]["status"]["allocatable"]["cpu"] = "2"
    assert len(await world.at(SHORT_SECONDS + AGAIN.first_seconds)) == 1


GETTING_NONE: dict[str, Json] = {
    "depends on other pods": {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
    "claims resources": {"resourceClaims": [{"name": "x", "resourceClaimName": "x"}]},
    "lacks CPU": {"cpu": "1000"},
}


@pytest.mark.parametrize("fields", GETTING_NONE.values(), ids=GETTING_NONE)
async def test_pods_that_can_get_none_keep_none_from_a_younger_one_of_their_shape(fields: Json) -> None:
    world = PlaceholderHarness()
    for name in ("a", "b"):
        world.add_pod(name, **fields)
    world.add_pod("c")
    looks = [SHORT_SECONDS + number * LOOK_INTERVAL_SECONDS for number in range(3)]
    assert await world.at(0.0, *looks[:2]) == []
    assert len(await world.at(looks[2])) == 1


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
    own = require({"matchExpressions": [zone]}, {"matchExpressions": [zone, zone]})
    world = PlaceholderHarness()
    world.show_agent("n", zone="a")
    world.add_pod("a", affinity=own)
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


async def test_one_that_is_refused_is_not_counted_and_makes_no_wait_longer() -> None:
    world = PlaceholderHarness(max_placeholders_per_hour=1)
    world.api.refusals = 2
    world.add_pod("a")
    tries = [SHORT_SECONDS + number * AGAIN.first_seconds for number in range(3)]
    assert len(await world.at(0.0, *tries)) == 1


async def test_a_scheduler_that_asks_about_a_placeholder_gets_no_node_for_it() -> None:
    desk = SchedulerHarness({"n": [16]})
    spec = {"schedulerName": well_known.PLACEHOLDER_SCHEDULER}
    answer = json.loads(desk.parts.verbs.filter(desk.encode_call("p", spec=spec)).body)
    assert (answer["NodeNames"], answer["Error"]) == ([], PLACEHOLDER_REFUSAL)
    assert await desk.bind("p", "n", spec) == f"{PLACEHOLDER_REFUSAL}; nothing was bound"


def list_terms(spec: Json) -> Json:
    return spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
