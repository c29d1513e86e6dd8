"""A scheduler tries the pods of a group on one rack after the other before it chooses one: they have places on each until then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from extender.scheduling.named_places import ALTERNATIVE_SECONDS
from tests.extender.scheduler_harness import SchedulerHarness
from tests.support.builders import ledger_pod, node_facts
from vrampack.cards.pod_group import GroupKey
from vrampack.kube.objects import NodeObject

GROUP = GroupKey("podgroups.scheduling.k8s.io", "default", "train")
SPEC: dict[str, Any] = {"schedulingGroup": {"podGroupName": "train"}}
RACK = "example.com/rack"
RACKS = {"a": ("a0", "a1"), "b": ("b0", "b1")}
MEMBERS = ("m0", "m1")


def start_desk(*, topology_key: str = RACK) -> SchedulerHarness:
    """Two racks of two nodes with one card, and a group of two that needs one rack."""
    desk = SchedulerHarness({name: [16] for names in RACKS.values() for name in names})
    for rack, names in RACKS.items():
        for name in names:
            put_in_rack(desk, name, rack)
    desk.parts.groups.put_minimum(GROUP, len(MEMBERS))
    desk.parts.groups.put_topology_key(GROUP, topology_key)
    for name in MEMBERS:
        desk.ledger.update_pod(replace(ledger_pod(name, units=9, version="1"), group=GROUP, may_bind_late=True))
    return desk


def put_in_rack(desk: SchedulerHarness, name: str, rack: str) -> None:
    node = {"metadata": {"name": name, "labels": {RACK: rack}}}
    desk.node_labels.update_node(msgspec.convert(node, NodeObject))


def try_on(desk: SchedulerHarness, names: tuple[str, ...], *members: str, units: int = 9) -> None:
    for name in members:
        passed = desk.filter_names(name, units, names=names, spec=SPEC, metadata={"resourceVersion": "1"})
        if len(passed) > 1:
            desk.parts.verbs.prioritize(desk.encode_call(name, units, passed, SPEC, {"resourceVersion": "1"}))


def try_on_racks(desk: SchedulerHarness) -> None:
    """One attempt of the group."""
    for names in RACKS.values():
        try_on(desk, names, *MEMBERS)


def list_held(desk: SchedulerHarness) -> dict[str, list[str]]:
    """The racks of each member's places."""
    held = desk.ledger.places.list_held_places()
    return {
        name: racks
        for name in MEMBERS
        if (racks := sorted(place.node_name[0] for place in held if place.pod.name == name))
    }


def test_each_rack_has_a_place_for_each_pod_until_one_is_chosen() -> None:
    desk = start_desk()
    for _ in range(2):
        try_on_racks(desk)
        assert list_held(desk) == {"m0": ["a", "b"], "m1": ["a", "b"]}
        assert len({place.node_name for place in desk.ledger.places.list_held_places()}) == 4
        assert desk.filter_names("other", 9) == []


@pytest.mark.parametrize("rack", RACKS)
async def test_the_first_bind_takes_the_place_of_its_rack_and_frees_the_others(rack: str) -> None:
    desk = start_desk()
    try_on_racks(desk)
    places = [place for place in desk.ledger.places.list_held_places() if place.node_name in RACKS[rack]]
    (first, second) = sorted(places, key=lambda place: place.pod.name)
    assert await desk.bind(first.pod.name, first.node_name, SPEC) == ""
    assert list_held(desk) == {second.pod.name: [rack]}
    other_rack = next(names for each, names in RACKS.items() if each != rack)
    assert desk.filter_names("other", 9) == list(other_rack)
    assert await desk.bind(second.pod.name, second.node_name, SPEC) == ""
    assert list_held(desk) == {}


def test_a_later_attempt_replaces_the_places_rack_by_rack() -> None:
    desk = start_desk()
    try_on_racks(desk)
    try_on(desk, RACKS["a"], "m0", units=17)
    assert list_held(desk) == {"m0": ["b"], "m1": ["a", "b"]}


def test_a_scheduler_that_tries_all_racks_at_once_names_one_place() -> None:
    desk = start_desk()
    for names in (RACKS["a"], RACKS["b"], ("a0", "b0"), ("a1", "b1")):
        try_on(desk, names, "m0")
    assert len(desk.ledger.places.list_held_places()) == 1


def test_a_group_that_may_go_to_any_rack_has_one_place_for_each_pod() -> None:
    desk = start_desk(topology_key="")
    try_on_racks(desk)
    assert list_held(desk) == {"m0": ["b"], "m1": ["b"]}


def test_places_on_different_racks_make_no_whole_group() -> None:
    desk = start_desk()
    try_on(desk, RACKS["a"], "m0")
    try_on(desk, RACKS["b"], "m1")
    assert desk.filter_names("other", 9) == ["a0", "a1", "b0", "b1"]
    assert list_held(desk) == {}


def test_a_group_that_is_whole_on_one_rack_keeps_all_its_places_beside_other_pods() -> None:
    desk = start_desk()
    try_on(desk, RACKS["a"], "m0", "m1")
    try_on(desk, RACKS["b"], "m1")
    desk.filter_names("other", 9)
    assert list_held(desk) == {"m0": ["a"], "m1": ["a", "b"]}


def test_a_pod_that_is_refused_for_its_group_has_no_place_on_any_rack() -> None:
    """Its pods ask for more by now, and there is one card of that size."""
    desk = start_desk()
    try_on_racks(desk)
    for name in MEMBERS:
        desk.ledger.update_pod(replace(ledger_pod(name, units=17, version="2"), group=GROUP))
    desk.put_node(node_facts("c0", 17))
    put_in_rack(desk, "c0", "c")
    assert desk.filter_names("m0", 17, names=("c0",), spec=SPEC) == []
    assert list_held(desk) == {"m1": ["a", "b"]}


def test_without_a_bind_only_the_last_place_outlives_the_attempt() -> None:
    desk = start_desk()
    try_on_racks(desk)
    for seconds, racks in ((ALTERNATIVE_SECONDS, ["a", "b"]), (1, ["b"]), (ALTERNATIVE_SECONDS, ["b"])):
        desk.seconds += seconds
        desk.parts.places.end_old_holds()
        assert list_held(desk) == {"m0": racks, "m1": racks}


def test_the_places_on_the_first_rack_last_as_long_as_others_are_tried() -> None:
    desk = start_desk()
    for rack in "abc":
        names = tuple(f"{rack}{number}" for number in range(2))
        for name in names:
            desk.put_node(node_facts(name, 16))
            put_in_rack(desk, name, rack)
        desk.seconds += ALTERNATIVE_SECONDS
        desk.parts.places.end_old_holds()
        try_on(desk, names, *MEMBERS)
    assert list_held(desk) == {"m0": ["a", "b", "c"], "m1": ["a", "b", "c"]}


def test_a_group_that_never_starts_leaves_a_rack_to_others() -> None:
    """All its pods that ask for memory find places; another, which asks for none, does not. It is tried every 10 s."""
    desk = start_desk()
    desk.parts.groups.put_minimum(GROUP, len(MEMBERS) + 1)
    desk.ledger.update_pod(replace(ledger_pod("launcher", version="1"), request=None, group=GROUP))
    for _ in range(2):
        try_on_racks(desk)
        for name in MEMBERS:
            failed = ledger_pod(name, units=9, version="2")
            desk.ledger.update_pod(replace(failed, group=GROUP, may_bind_late=True, failed_attempt="x"))
        desk.seconds += 10
        desk.parts.places.end_old_holds()
    assert desk.filter_names("other", 9) == list(RACKS["a"])


async def test_a_pod_with_places_on_several_racks_is_no_victim_before_one_is_chosen() -> None:
    """The scheduler has it on none of these nodes, and refuses an answer that names such a pod."""
    desk = start_desk()
    try_on_racks(desk)
    (place, other) = desk.ledger.places.list_held_places_of("m0")
    proposal: dict[str, list[str]] = {place.node_name: [], other.node_name: []}
    assert await desk.preempt("urgent", 10, proposal, priority=5) == {}
    nominated = ledger_pod("m0", units=9, version="2")
    desk.ledger.update_pod(replace(nominated, group=GROUP, may_bind_late=True, nominated_node=place.node_name))
    assert await desk.preempt("urgent", 10, {place.node_name: []}, priority=5) == {place.node_name: ["m0"]}


NEWS = {
    "nominated to one rack": ({"nominated_node": "a0"}, 1),
    "not placed, for some reason": ({"failed_attempt": "Unschedulable: too few"}, 0),
    "being deleted": ({"is_terminating": True}, 0),
    "bound": ({"node_name": "a0"}, 0),
}


@pytest.mark.parametrize(("news", "left"), NEWS.values(), ids=NEWS)
def test_news_of_the_pod_ends_the_places_that_it_cannot_need(news: dict[str, Any], left: int) -> None:
    desk = start_desk()
    try_on_racks(desk)
    (place,) = [each for each in desk.ledger.places.list_held_places_of("m0") if each.node_name in RACKS["a"]]
    if "nominated_node" in news:
        news = {"nominated_node": place.node_name}
    pod = replace(ledger_pod("m0", units=9, version="2"), group=GROUP, may_bind_late=True, **news)
    desk.ledger.update_pod(pod)
    assert [each.node_name for each in desk.ledger.places.list_held_places_of("m0")] == [place.node_name] * left
    assert list_held(desk)["m1"] == ["a", "b"]
