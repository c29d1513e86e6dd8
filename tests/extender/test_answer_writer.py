"""Refused pods say why: what the condition and the event have, for whom, how often, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from extender.answers.untold_pods import UntoldPods
from extender.rule_settings import RuleSettings
from tests.extender.scheduler_harness import SchedulerHarness
from tests.support.builders import card_facts, ledger_pod, pod_request
from vrampack.cards.node import NodeFacts
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import PodRequest
from vrampack.kube.errors import NoAnswerError, RefusedError

Json = dict[str, Any]  # Any: a pod as its scheduler sends it


def start_desk(*units: int) -> SchedulerHarness:
    """A node `a` of one A100 of 80 units, on which another namespace's pod holds so many, and a node `t` of one T4 of 15."""
    desk = SchedulerHarness({"a": [80], "t": [15]})
    for name, card_units, model in (("a", 80, "A100"), ("t", 15, "T4")):
        cards = tuple(replace(card, model=model) for card in card_facts(card_units))
        desk.put_node(NodeFacts(name, cards, unit_mib=1024))
    for held in units:
        desk.add_bound_pod("secret", "a", held)
    return desk


def refuse(
    desk: SchedulerHarness, name: str, ask: PodRequest, *, names: tuple[str, ...] = ("a", "t"), **pod: Json
) -> None:
    """The pod waits, and its scheduler asks about these nodes."""
    desk.ledger.update_pod(ledger_pod(name, ask=ask, created=name))
    assert desk.filter_names(name, ask.asked_units, names=names, **pod) == []


def list_told(desk: SchedulerHarness) -> list[tuple[str, object]]:
    return [(name, condition["reason"]) for name, condition in desk.api.conditions]


async def begin_to_look(desk: SchedulerHarness) -> asyncio.Task[None]:
    """The round has chosen its pods, and has to look at more nodes for the first one."""
    desk.seconds += 2.0
    looking = asyncio.create_task(desk.parts.answers.do_round())
    for _ in range(2):
        await asyncio.sleep(0)
    return looking


TEXTS: dict[str, tuple[PodRequest, tuple[str, ...], Json, str]] = {
    # of the A100, 80 - 75 = 5 are free; the T4 has 15 at all
    "too little is free": (
        pod_request(20),
        ("a", "t"),
        {},
        (
            "asks for 20 units (20 GiB) on one card; the nearest node is a (A100): no card with enough free memory, "
            "at most 5 free on one card, 15 missing; large enough when empty: A100"
        ),
    ),
    "its selector leaves a node out": (
        pod_request(20),
        ("t",),
        {"spec": {"nodeSelector": {"pool": "t4", "zone": "b"}}},
        (
            "asks for 20 units (20 GiB) on one card; the nearest node is t (T4): larger than any card, at most 15 units; "
            "1 other node with cards was left out by the scheduler itself (pool=t4, zone=b); large enough when empty: A100"
        ),
    ),
    "no card is large enough": (
        pod_request(90),
        ("a", "t"),
        {},
        (
            "asks for 90 units (90 GiB) on one card; the nearest node is a (A100): larger than any card, at most 80 units; "
            "no card of the cluster is large enough"
        ),
    ),
}


@pytest.mark.parametrize(("ask", "names", "pod", "text"), TEXTS.values(), ids=TEXTS)
async def test_the_condition_and_the_event_say_what_is_missing(
    ask: PodRequest, names: tuple[str, ...], pod: Mapping[str, Json], text: str
) -> None:
    desk = start_desk(75)
    refuse(desk, "p", ask, names=names, **pod)
    assert await desk.tell_refused() == [("GPUMemoryNotPlaced", text)]
    ((name, condition),) = desk.api.conditions
    assert (name, condition["type"], condition["status"]) == ("p", "VrampackPlacement", "False")
    assert condition["message"] == text
    assert "secret" not in text


async def test_an_invalid_request_is_told_with_its_field() -> None:
    desk = start_desk()
    refuse(
        desk,
        "p",
        pod_request(4, labels={"aliyun.com/gpu-count": "x"}),
        metadata={"labels": {"aliyun.com/gpu-count": "x"}},
    )
    ((reason, text),) = await desk.tell_refused()
    assert reason == "GPUMemoryRequestNotValid"
    assert text.startswith('metadata.labels["aliyun.com/gpu-count"]')
    assert list_told(desk) == [("p", "RequestNotValid")]


async def test_a_pod_that_finds_room_soon_is_told_nothing() -> None:
    desk = start_desk(75)
    refuse(desk, "p", pod_request(20))
    desk.seconds += 1.9
    await desk.parts.answers.do_round()
    desk.ledger.remove_pod("secret")
    assert desk.filter_names("p", 20) == ["a"]
    assert await desk.tell_refused() == []


async def test_room_that_no_call_has_seen_yet_is_not_denied() -> None:
    desk = start_desk(75)
    refuse(desk, "p", pod_request(20))
    desk.ledger.remove_pod("secret")
    assert await desk.tell_refused() == []


async def test_calls_are_answered_while_a_pod_is_looked_at() -> None:
    desk = start_desk(75)
    refuse(desk, "p", pod_request(20))
    looking = await begin_to_look(desk)
    desk.ledger.remove_pod("secret")
    assert desk.filter_names("q", 20) == ["a"]
    await looking
    assert list_told(desk) == []


async def test_calls_are_answered_while_thousands_of_refused_pods_are_looked_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The oldest of all are told, though they were refused last."""
    desk = start_desk(75)
    monkeypatch.setattr("extender.answers.answer_writer.PODS_PER_SLICE", 4)
    count = 12
    for number in range(count):
        desk.ledger.update_pod(ledger_pod(f"p{number}", units=20, created=f"{count - number:04}"))
        desk.filter_names(f"p{number}", 20)
    desk.seconds += 2.0
    looking = asyncio.create_task(desk.parts.answers.do_round())
    for _ in range(3):
        await asyncio.sleep(0)
        assert not list_told(desk)
    await looking
    assert [name for name, _ in list_told(desk)] == [f"p{count - 1}", f"p{count - 2}"]


async def test_names_that_are_forgotten_while_a_pod_is_looked_at_are_not_mistaken_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = start_desk(75)
    refuse(desk, "p", pod_request(20))
    looking = await begin_to_look(desk)
    monkeypatch.setattr("extender.answers.untold_pods.MAX_NODES", 1)
    refuse(desk, "q", pod_request(20), names=("t",))
    await looking
    assert list_told(desk) == []


async def test_a_pod_that_is_bound_while_it_is_looked_at_is_told_nothing() -> None:
    desk = start_desk(75)
    refuse(desk, "p", pod_request(20))
    looking = await begin_to_look(desk)
    desk.ledger.update_pod(ledger_pod("p", units=20, node="t"))
    await looking
    assert list_told(desk) == []


async def test_a_pod_is_told_again_only_for_another_kind_of_reason() -> None:
    """It says itself what it was told: another process tells it no more. Back and forth, it is told once a minute."""
    desk = start_desk(75)
    told = replace(ledger_pod("p", units=20), told_reason="NoCardWithEnoughFreeMemory")
    desk.ledger.update_pod(told)
    for held in (75, 70):
        desk.add_bound_pod("secret", "a", held)
        desk.filter_names("p", 20)
        await desk.tell_refused()
    assert list_told(desk) == []
    desk.ledger.remove_pod("secret")
    sick = tuple(replace(card, healthy=False) for card in card_facts(80))
    desk.put_node(NodeFacts("a", sick, unit_mib=1024))
    desk.filter_names("p", 20)
    await desk.tell_refused()
    assert list_told(desk) == [("p", "CardUnhealthyOrCordoned")]
    desk.ledger.update_pod(replace(told, told_reason="CardUnhealthyOrCordoned"))
    desk.add_bound_pod("secret", "a", 75)
    desk.filter_names("p", 20)
    await desk.tell_refused()
    assert len(list_told(desk)) == 1
    desk.seconds += 60
    await desk.tell_refused()
    assert list_told(desk)[1:] == [("p", "NoCardWithEnoughFreeMemory")]


async def test_two_pods_are_told_in_a_second_and_the_oldest_first() -> None:
    desk = start_desk(75)
    for number in (3, 1, 4, 2, 5):
        refuse(desk, f"p{number}", pod_request(20))
    desk.seconds += 2.0
    await desk.parts.answers.do_round()
    assert [name for name, _ in list_told(desk)] == ["p1", "p2"]
    await desk.parts.answers.do_round()
    assert [name for name, _ in list_told(desk)] == ["p1", "p2", "p3", "p4"]


async def test_bound_pods_are_told_nothing() -> None:
    desk = start_desk(75)
    refuse(desk, "p", pod_request(20))
    desk.ledger.update_pod(ledger_pod("p", units=20, node="t"))
    await desk.tell_refused()
    assert list_told(desk) == []


@pytest.mark.parametrize(
    "error", [NoAnswerError("silence"), RefusedError(401, "", "who"), RefusedError(429, "", "later")]
)
async def test_an_api_server_that_takes_no_answer_is_left_alone_for_a_while(error: Exception) -> None:
    """No other pod is told in that round either; later each pod is, also the one whose answer failed."""
    desk = start_desk(75)
    desk.api.condition_errors.append(error)
    refuse(desk, "p", pod_request(20))
    refuse(desk, "q", pod_request(20))
    await desk.tell_refused()
    assert list_told(desk) == []
    desk.seconds += 10
    await desk.tell_refused()
    assert "q" in dict(list_told(desk))
    desk.seconds += 60
    await desk.tell_refused()
    assert sorted(dict(list_told(desk))) == ["p", "q"]


@pytest.mark.parametrize("status", [404, 403])
async def test_a_pod_that_cannot_be_written_keeps_no_other_from_being_told(status: int) -> None:
    """It is tried again after a minute, if it is still there, and after those that were not tried yet."""
    desk = start_desk(75)
    desk.api.condition_errors.append(RefusedError(status, "", "no"))
    for name in ("p", "q"):
        refuse(desk, name, pod_request(20))
    await desk.tell_refused()
    assert [name for name, _ in list_told(desk)] == ["q"]
    desk.seconds += 60
    for name in ("r", "s"):
        refuse(desk, name, pod_request(20))
    desk.seconds += 2
    await desk.parts.answers.do_round()
    assert [name for name, _ in list_told(desk)] == ["q", "r", "s"]
    await desk.tell_refused()
    assert ("p" in dict(list_told(desk))) == (status == 403)


async def test_pods_that_are_told_again_come_last_and_ever_more_rarely() -> None:
    desk = start_desk(75)
    for number in range(2):
        told = replace(ledger_pod(f"old{number}", units=20, created="a"), told_reason="CardUnhealthyOrCordoned")
        desk.ledger.update_pod(told)
        desk.filter_names(told.uid, 20)
    refuse(desk, "young", pod_request(20))
    desk.seconds += 2.0
    await desk.parts.answers.do_round()
    assert [name for name, _ in list_told(desk)] == ["young", "old0"]
    times = []
    for _ in range(400):
        before = len(list_told(desk))
        desk.filter_names("old0", 20)
        await desk.parts.answers.do_round()
        times += [desk.seconds] * [name for name, _ in list_told(desk)[before:]].count("old0")
        desk.seconds += 5.0
    assert [round(later - earlier) // 60 for earlier, later in pairwise(times)] == [2, 4, 8, 15]


async def test_pods_of_many_selectors_are_told() -> None:
    """Each is refused seldom, and the others ask about other nodes meanwhile: it keeps its own, and its place in time."""
    desk = SchedulerHarness({f"n{number:02}": [4] for number in range(40)}, rules=RuleSettings())
    refuse(desk, "p00", pod_request(9), names=("n00", "n01"))
    for number in range(1, 40):
        refuse(desk, f"p{number:02}", pod_request(9), names=(f"n{number:02}",))
    desk.seconds += 1.0
    for _ in range(20):
        await desk.tell_refused()
    assert [name for name, _ in list_told(desk)] == [f"p{number:02}" for number in range(40)]
    assert "the nearest node is n00" in str(desk.api.conditions[0][1]["message"])
    assert "38 other nodes with cards were left out" in str(desk.api.conditions[0][1]["message"])


def test_the_same_answer_again_is_found_by_its_names() -> None:
    untold = UntoldPods(lambda: 0.0)
    names = frozenset(f"n{number}" for number in range(100))
    for _ in range(2):
        untold.note_refusal("p", "", UnfitReason.NO_MEMORY, names, "")
    untold.note_refusal("q", "", UnfitReason.NO_MEMORY, ["n7", "later"], "")
    first, second = (untold.get_refusal(uid) for uid in ("p", "q"))
    assert first is not None
    assert second is not None
    assert untold.list_names(first) == names
    assert untold.list_names(second) == {"n7", "later"}
    untold.note_refusal("p", "", UnfitReason.NO_MEMORY, names, "")
    assert untold.get_refusal("p") is first


def test_names_of_nodes_that_are_gone_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that are forgotten are noted when they are refused again."""
    monkeypatch.setattr("extender.answers.untold_pods.MAX_NODES", 2)
    untold = UntoldPods(lambda: 0.0)
    for number in range(4):
        untold.note_refusal(f"p{number}", "", UnfitReason.NO_MEMORY, [f"n{number}"], "")
    assert untold.list_uids() == ["p3"]
    refusal = untold.get_refusal("p3")
    assert refusal is not None
    assert untold.list_names(refusal) == {"n3"}
