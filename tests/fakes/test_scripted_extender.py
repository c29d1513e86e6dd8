"""The scripted extender has useful default answers, follows a script if there is one, and records calls either way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.fakes.scripted_extender import Json, ScriptedCall, ScriptedExtender, ScriptedRule
from vrampack.simulator.apiserver import ApiServer

ASK = {"Pod": {"metadata": {"name": "a"}}, "Nodes": None, "NodeNames": ["n2", "n1"]}


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer() as running:
        yield running


@pytest.fixture
async def extender(api: ApiServer) -> AsyncIterator[ScriptedExtender]:
    async with ScriptedExtender(api.url) as running:
        yield running


async def ask(extender: ScriptedExtender, verb: str, body: Json = ASK, timeout_seconds: float = 5) -> Json:
    timeout = aiohttp.ClientTimeout(total=timeout_seconds)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(f"{extender.url}/{verb}", json=body) as response,
    ):
        text = await response.text()
        return (await response.json()) if response.status == 200 and text else (response.status, text)


def bind_of(api: ApiServer) -> dict[str, str]:
    made = api.create({"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "m"}]}})
    return {"PodName": "a", "PodNamespace": "default", "PodUID": made["metadata"]["uid"], "Node": "n1"}


async def test_without_rules_all_nodes_pass_and_the_first_name_wins(extender: ScriptedExtender) -> None:
    assert (await ask(extender, "filter"))["NodeNames"] == ["n1", "n2"]
    assert await ask(extender, "prioritize") == [{"Host": "n1", "Score": 10}, {"Host": "n2", "Score": 5}]


async def test_bind_posts_a_binding(extender: ScriptedExtender, api: ApiServer) -> None:
    assert await ask(extender, "bind", bind_of(api)) == {"Error": ""}
    assert api.get("pods", "a")["spec"]["nodeName"] == "n1"


async def test_a_refused_bind_posts_a_binding_only_if_asked_to(extender: ScriptedExtender, api: ApiServer) -> None:
    asked = bind_of(api)
    extender.rules = [
        ScriptedRule("bind", answer={"Error": "no"}, times=1),
        ScriptedRule("bind", answer={"Error": "no"}, binds=True),
    ]
    await ask(extender, "bind", asked)
    assert "nodeName" not in api.get("pods", "a")["spec"]
    await ask(extender, "bind", asked)
    assert api.get("pods", "a")["spec"]["nodeName"] == "n1"


async def test_rules_apply_to_their_verb_and_pod_a_given_number_of_times(extender: ScriptedExtender) -> None:
    extender.rules = [
        ScriptedRule("filter", "b", refuse={"*": "not b"}),
        ScriptedRule("bind", status=500),
        ScriptedRule("filter", refuse={"n1": "full"}, times=1),
    ]
    assert (await ask(extender, "filter"))["FailedNodes"] == {"n1": "full"}
    assert (await ask(extender, "filter"))["FailedNodes"] == {}


ANSWERS = {
    "usual": (ScriptedRule("filter"), "ok"),
    "refused": (ScriptedRule("filter", refuse={"*": "full"}), "no"),
    "null": (ScriptedRule("filter", answer={"NodeNames": None}), "no"),
    "error": (ScriptedRule("filter", answer={"Error": "oops"}), "error"),
    "stranger": (ScriptedRule("filter", answer={"NodeNames": ["n9"]}), "error"),
    "status": (ScriptedRule("filter", status=500), "error"),
    "text": (ScriptedRule("filter", text=""), "error"),
}


@pytest.mark.parametrize(("rule", "says"), ANSWERS.values(), ids=ANSWERS)
async def test_calls_are_recorded_in_decoded_form(extender: ScriptedExtender, rule: ScriptedRule, says: str) -> None:
    extender.rules = [rule]
    await ask(extender, "filter")
    assert extender.calls == [ScriptedCall("filter", "a", ("n1", "n2"), says)]
    assert extender.bodies == [ASK]


async def test_a_call_whose_caller_gave_up_is_recorded_as_late(extender: ScriptedExtender) -> None:
    extender.rules = [ScriptedRule("filter", hang_seconds=60)]
    with pytest.raises(TimeoutError):
        await ask(extender, "filter", timeout_seconds=0.1)
    async with asyncio.timeout(5):
        while extender.open_calls:  # noqa: ASYNC110 - the server notices it some time later
            await asyncio.sleep(0.01)
    assert [call.says for call in extender.calls] == ["late"]


async def test_a_cut_call_has_no_answer(extender: ScriptedExtender) -> None:
    extender.rules = [ScriptedRule("filter", is_cut=True)]
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await ask(extender, "filter")
    assert [call.says for call in extender.calls] == ["error"]


async def test_calls_are_in_the_order_of_their_answers(extender: ScriptedExtender) -> None:
    extender.rules = [ScriptedRule("filter", "a", hang_seconds=0.2)]
    slow = asyncio.create_task(ask(extender, "filter"))
    async with asyncio.timeout(5):
        while not extender.open_calls:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    await ask(extender, "filter", ASK | {"Pod": {"metadata": {"name": "b"}}})
    await slow
    assert [call.pod for call in extender.calls] == ["b", "a"]
    assert [body["Pod"]["metadata"]["name"] for body in extender.bodies] == ["a", "b"]
