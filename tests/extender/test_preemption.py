"""The verb preempt: which proposals are kept, completed or dropped, and how it answers calls that it cannot read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.fakes.api import Object
from tests.support import recorded_requests
from tests.support.in_memory_extender import InMemoryExtender

PRIORITY = 10
Proposal = Mapping[str, Sequence[str] | None]


def a_pod(uid: str, units: object, *, node: str = "", card: int | None = None, priority: int = 1) -> Object:
    """With `card`, a record that puts it there."""
    notes = {} if card is None else {"scheduler.framework.gpushare.allocation": f'{{"0":{{"{card}":{units}}}}}'}
    limits = {} if units is None else {"aliyun.com/gpu-mem": str(units)}
    return {
        "metadata": {"name": uid, "namespace": "default", "uid": uid, "annotations": notes},
        "spec": {
            "nodeName": node or None,
            "priority": priority,
            "containers": [{"name": "main", "resources": {"limits": limits}}],
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def a_node(name: str = "n") -> Object:
    """Two cards of 8 units, as gpushare's plugin advertises them."""
    allocatable = {"aliyun.com/gpu-mem": "16", "aliyun.com/gpu-count": "2"}
    return {"metadata": {"name": name}, "status": {"allocatable": allocatable}}


def full(node: str = "n") -> list[Object]:
    """Pods of 4 units, a and b on card 0, c and d on card 1; b and d are the less important ones."""
    return [
        a_pod("a", 4, node=node, card=0, priority=3),
        a_pod("b", 4, node=node, card=0, priority=1),
        a_pod("c", 4, node=node, card=1, priority=4),
        a_pod("d", 4, node=node, card=1, priority=2),
    ]


def call(asking: Object, proposal: Proposal) -> dict[str, Any]:
    victims = {
        name: {"Pods": None if uids is None else [{"UID": uid} for uid in uids], "NumPDBViolations": 7}
        for name, uids in proposal.items()
    }
    return {"Pod": asking, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}


async def answer(pods: list[Object], asking: Object, proposal: Proposal) -> dict[str, list[str]]:
    extender = InMemoryExtender([a_node()], pods)
    reply = await extender.post_verb("preempt", json.dumps(call(asking, proposal)).encode())
    assert reply.status == 200
    victims = reply.json()["NodeNameToMetaVictims"]
    assert all(each["NumPDBViolations"] == 7 for each in victims.values())
    return {name: [pod["UID"] for pod in each["Pods"]] for name, each in victims.items()}


URGENT = a_pod("urgent", 8, priority=PRIORITY)
CASES: dict[str, tuple[list[Object], Object, Proposal, dict[str, list[str]]]] = {
    "a card is freed": (full(), URGENT, {"n": ["a", "b"]}, {"n": ["a", "b"]}),
    "the scheduler's order stays": (full(), URGENT, {"n": ["b", "a"]}, {"n": ["b", "a"]}),
    "more than we would take is kept": (full(), URGENT, {"n": ["a", "b", "d"]}, {"n": ["a", "b", "d"]}),
    # b and d free 4 on each card: a goes as well, the lower of a and c, and stands first
    "two cards are half freed": (full(), URGENT, {"n": ["d", "b"]}, {"n": ["a", "d", "b"]}),
    "a pod that the ledger does not know": (full(), URGENT, {"n": ["other"]}, {"n": ["other", "a", "b"]}),
    "only what others hold is in the way": ([], URGENT, {"n": ["other"]}, {"n": ["other"]}),
    "nothing proposed": (full(), URGENT, {"n": []}, {"n": ["a", "b"]}),
    "null proposed": (full(), URGENT, {"n": None}, {"n": ["a", "b"]}),
    "nothing proposed and nothing in the way": ([], URGENT, {"n": []}, {}),
    "a node that the ledger does not know": (full(), URGENT, {"x": ["a"], "n": ["a", "b"]}, {"n": ["a", "b"]}),
    "larger than a card": (full(), a_pod("urgent", 9, priority=PRIORITY), {"n": ["a", "b", "c", "d"]}, {}),
    "no lower one is left": (full(), a_pod("urgent", 8, priority=3), {"n": ["b", "d"]}, {}),
    "a proposed one is not lower": (full(), a_pod("urgent", 4, priority=3), {"n": ["a"]}, {}),
    "asks nothing of ours": (full(), a_pod("urgent", None, priority=1), {"n": ["a"], "x": []}, {"n": ["a"]}),
    "a running pod that is resized": (full(), a_pod("b", 4, node="n"), {"n": ["a"]}, {"n": ["a"]}),
    "not a valid request": (full(), a_pod("urgent", "1.5", priority=PRIORITY), {"n": ["a", "b"]}, {}),
}


@pytest.mark.parametrize(("pods", "asking", "proposal", "want"), CASES.values(), ids=CASES)
async def test_preempt_keeps_completes_or_drops_each_proposal(
    pods: list[Object], asking: Object, proposal: Proposal, want: dict[str, list[str]]
) -> None:
    assert await answer(pods, asking, proposal) == want


async def test_request_and_priority_come_from_the_api_server() -> None:
    """The body says 4 units and priority 10; the pod of that uid asks 8 at priority 4, so c may not go."""
    known = a_pod("urgent", 8, priority=4)
    pods = [*full(), known]
    assert await answer(pods, a_pod("urgent", 4, priority=PRIORITY), {"n": ["d"]}) == {"n": ["a", "d", "b"]}


async def test_a_reservation_of_the_pod_itself_does_not_block_it() -> None:
    """Card 0 is held by a pod of higher priority: without card 1, which a bind reserved for it, nothing would do."""
    extender = InMemoryExtender([a_node()], [a_pod("vip", 4, node="n", card=0, priority=99), URGENT])
    binding = {"PodName": "urgent", "PodNamespace": "default", "PodUID": "urgent", "Node": "n"}
    assert (await extender.post_verb("bind", json.dumps(binding).encode())).json() == {"Error": ""}
    assert len(extender.ledger.places.list_reservations()) == 1
    reply = await extender.post_verb("preempt", json.dumps(call(URGENT, {"n": ["other"]})).encode())
    assert reply.json()["NodeNameToMetaVictims"]["n"]["Pods"] == [{"UID": "other"}]


async def test_a_pod_that_may_not_preempt_is_given_no_node() -> None:
    never = {**URGENT, "spec": {**URGENT["spec"], "preemptionPolicy": "Never"}}
    assert await answer(full(), never, {"n": ["a", "b"]}) == {}


@pytest.mark.parametrize("turns", range(1, 9))
async def test_a_node_that_changes_during_the_call_is_evaluated_again(turns: int) -> None:
    """Pod a went and e came, before the answer about ten more nodes was complete: e must go as well, and a is still named."""
    others = [f"other-{number}" for number in range(10)]
    nodes = [a_node(name) for name in ("n", *others)]
    extender = InMemoryExtender(nodes, full())
    body = json.dumps(call(URGENT, {"n": ["a", "b"]} | {name: ["x"] for name in others})).encode()
    preempting = asyncio.ensure_future(extender.preemption.preempt(body))
    for _ in range(turns):
        await asyncio.sleep(0)
    assert not preempting.done()
    extender.feed_objects(nodes, [*full()[1:], a_pod("e", 4, node="n", card=0, priority=2)])
    victims = json.loads((await preempting).body)["NodeNameToMetaVictims"]
    assert [pod["UID"] for pod in victims["n"]["Pods"]] == ["a", "e", "b"]
    assert list(victims) == ["n", *others]


async def test_two_pods_that_preempt_at_once_are_not_given_one_card() -> None:
    """Of each of three nodes one card can be freed: they are kept for the first pod, as if the second call came after its answer."""
    lesser = [a_pod(f"on-{node}", 8, node=node, card=0) for node in "xyz"]
    greater = [a_pod(f"stays-{node}", 8, node=node, card=1, priority=99) for node in "xyz"]
    extender = InMemoryExtender([a_node(name) for name in "xyz"], lesser + greater)
    proposal = {name: [f"on-{name}"] for name in "xyz"}
    calls = [json.dumps(call(a_pod(uid, 8, priority=PRIORITY), proposal)).encode() for uid in ("first", "second")]
    replies = await asyncio.gather(*map(extender.preemption.preempt, calls))
    assert [list(json.loads(reply.body)["NodeNameToMetaVictims"]) for reply in replies] == [["x", "y", "z"], []]


@pytest.mark.parametrize("spell", [str.lower, str.upper, str.swapcase])
async def test_keys_are_read_in_any_letter_case(spell: Any) -> None:  # noqa: ANN401 - a method of str
    named = ("Pod", "NodeNameToMetaVictims", "NodeNameToVictims", "Pods", "UID", "NumPDBViolations", "metadata")
    text = json.dumps(call({**URGENT, "spec": {**URGENT["spec"], "preemptionPolicy": None}}, {"n": ["b", "d"]}))
    for name in (*named, "spec", "priority", "containers", "resources", "limits", "uid"):
        text = text.replace(f'"{name}":', f'"{spell(name)}":')
    reply = await InMemoryExtender([a_node()], full()).post_verb("preempt", text.encode())
    victims = reply.json()["NodeNameToMetaVictims"]["n"]
    assert victims == {"Pods": [{"UID": "a"}, {"UID": "b"}, {"UID": "d"}], "NumPDBViolations": 7}


@pytest.mark.parametrize("empty", [None, {"Pods": None}, {"Pods": []}, {}])
@pytest.mark.parametrize("form", ["NodeNameToMetaVictims", "NodeNameToVictims"])
async def test_empty_proposals_of_every_form_are_completed(form: str, empty: object) -> None:
    body = {"Pod": URGENT, form: {"n": empty}}
    reply = await InMemoryExtender([a_node()], full()).post_verb("preempt", json.dumps(body).encode())
    want = {"Pods": [{"UID": "a"}, {"UID": "b"}], "NumPDBViolations": 0}
    assert reply.json() == {"NodeNameToMetaVictims": {"n": want}}


MALFORMED: dict[str, tuple[object, str]] = {
    "no pod": ({"NodeNameToMetaVictims": {}}, "Pod is missing"),
    "no victims": ({"Pod": URGENT}, "NodeNameToMetaVictims and NodeNameToVictims are missing"),
    "no uid": ({"Pod": URGENT, "NodeNameToMetaVictims": {"n": {"Pods": [{}]}}}, "send the uid of every pod"),
    "no uid in a pod": ({"Pod": URGENT, "NodeNameToVictims": {"n": {"Pods": [{"spec": {}}]}}}, "node 'n'"),
    "a null victim": ({"Pod": URGENT, "NodeNameToMetaVictims": {"n": {"Pods": [None]}}}, "not what a scheduler sends"),
    "a list": ({"Pod": URGENT, "NodeNameToMetaVictims": []}, "not what a scheduler sends"),
    "another shape": ([], "not what a scheduler sends"),
}


@pytest.mark.parametrize(("body", "text"), MALFORMED.values(), ids=MALFORMED)
async def test_an_unreadable_call_is_refused_with_the_expected_form(body: object, text: str) -> None:
    extender = InMemoryExtender([a_node()], full())
    reply = await extender.post_verb("preempt", json.dumps(body).encode())
    assert reply.status == 400
    assert text in reply.json()["error"]
    assert counted(extender) == {"malformed": 1}


async def test_preempt_answers_503_when_not_ready() -> None:
    extender = InMemoryExtender([a_node()], full())
    extender.readiness.problem = "stopping"
    reply = await extender.post_verb("preempt", json.dumps(call(URGENT, {"n": ["a", "b"]})).encode())
    assert (reply.status, reply.json()) == (503, {"error": "not ready: stopping"})
    assert counted(extender) == {"unready": 1}


async def test_calls_are_counted_by_the_outcome_of_the_proposal() -> None:
    extender = InMemoryExtender([a_node()], full())
    proposals: list[tuple[list[str], int]] = [(["a", "b"], 8), (["b", "d"], 8), (["b", "d"], 4), ([], 9)]
    for uids, units in proposals:
        asking = a_pod("urgent", units, priority=PRIORITY)
        await extender.post_verb("preempt", json.dumps(call(asking, {"n": uids})).encode())
    assert counted(extender) == {"ok": 2, "added": 1, "no": 1}


def counted(extender: InMemoryExtender) -> dict[str, float]:
    (family,) = extender.metrics.preemptions.collect()
    samples = (sample for sample in family.samples if sample.name.endswith("_total"))
    return {sample.labels["result"]: sample.value for sample in samples if sample.value}


def test_preempt_calls_are_recorded_in_both_forms() -> None:
    calls = [
        json.loads(recorded_requests.read_recording(name)) for name in recorded_requests.recording_names("preempt")
    ]
    forms = [(bool(call["NodeNameToMetaVictims"]), bool(call["NodeNameToVictims"])) for call in calls]
    assert sorted(forms) == [(False, True), (True, False)]
