"""How answers are read, down to the bytes: what Go would accept, and what it would not."""

from __future__ import annotations

import pytest

from tests.fakes.upstream import FakeUpstream, http_reply
from vrampack.simulator.scheduling.extender_client import ExtenderClient, ExtenderError
from vrampack.simulator.scheduling.settings import SchedulerSettings

POD = {"metadata": {"name": "a", "namespace": "default", "uid": "u"}, "spec": {}}
NAMES = ["n1", "n2"]


async def filtered(body: bytes, status: int = 200) -> tuple[list[str], dict[str, str]]:
    async with FakeUpstream(replies=[http_reply(body, status)]) as upstream, _client(upstream) as client:
        answer = await client.filter(POD, NAMES)
        return list(answer.names), dict(answer.reasons)


async def scores(body: bytes, status: int = 200) -> dict[str, int]:
    async with FakeUpstream(replies=[http_reply(body, status)]) as upstream, _client(upstream) as client:
        return await client.prioritize(POD, NAMES)


async def bound(body: bytes, status: int = 200) -> None:
    async with FakeUpstream(replies=[http_reply(body, status)]) as upstream, _client(upstream) as client:
        await client.bind(POD, "n1")


def _client(upstream: FakeUpstream) -> ExtenderClient:
    return ExtenderClient(SchedulerSettings(f"http://127.0.0.1:{upstream.port}/x/", weight=3))


READ = {
    "names": (b'{"NodeNames":["n2"]}', ["n2"], {}),
    "whole nodes": (b'{"Nodes":{"items":[{"metadata":{"name":"n1"}}]}}', ["n1"], {}),
    "names before nodes": (b'{"NodeNames":[],"Nodes":{"items":[{"metadata":{"name":"n1"}}]}}', [], {}),
    "reasons": (b'{"NodeNames":["n1"],"FailedNodes":{"n2":"full"}}', ["n1"], {"n2": "full"}),
    "any letter case": (b'{"nodenames":["n1"],"FAILEDNODES":{"n2":"full"}}', ["n1"], {"n2": "full"}),
    "unresolvable wins": (
        b'{"FailedNodes":{"n1":"full","n2":"full"},"FailedAndUnresolvableNodes":{"n1":"too small"}}',
        [],
        {"n1": "too small", "n2": "full"},
    ),
    "nulls": (b'{"Nodes":null,"NodeNames":null,"FailedNodes":null,"Error":null}', [], {}),
    "empty": (b"{}", [], {}),
    "null": (b"null", [], {}),
    "more than is known": (b'{"NodeNames":["n1"],"Verdict":{"a":1}}', ["n1"], {}),
}


@pytest.mark.parametrize(("body", "names", "reasons"), READ.values(), ids=READ)
async def test_filter_answers_are_read(body: bytes, names: list[str], reasons: dict[str, str]) -> None:
    assert await filtered(body) == (names, reasons)


BROKEN = {
    "status": (b'{"NodeNames":["n1"]}', 500, "failed filter with extender at URL http://.*/x/filter, code 500"),
    "created": (b'{"NodeNames":["n1"]}', 201, "code 201"),
    "error": (b'{"NodeNames":["n1"],"Error":"ledger is stale"}', 200, "^ledger is stale$"),
    "stranger": (b'{"NodeNames":["n9"]}', 200, 'claims a filtered node "n9" which is not found'),
    "nothing": (b"", 200, "^EOF$"),
    "no JSON": (b"oops", 200, "not JSON"),
    "no object": (b"[]", 200, "cannot be read"),
    "no names": (b'{"NodeNames":"n1"}', 200, "cannot be read"),
    "no text": (b'{"FailedNodes":{"n1":1}}', 200, "cannot be read"),
}


@pytest.mark.parametrize(("body", "status", "message"), BROKEN.values(), ids=BROKEN)
async def test_failed_filter_calls_raise_an_error(body: bytes, status: int, message: str) -> None:
    with pytest.raises(ExtenderError, match=message):
        await filtered(body, status)


SCORED = {
    # score x weight 3 x 10
    "scores": (b'[{"Host":"n1","Score":10},{"Host":"n2","Score":1}]', 200, {"n1": 300, "n2": 30}),
    "any letter case": (b'[{"host":"n1","SCORE":2}]', 200, {"n1": 60}),
    "twice": (b'[{"Host":"n1","Score":1},{"Host":"n1","Score":2}]', 200, {"n1": 90}),
    "no score": (b'[{"Host":"n1"}]', 200, {"n1": 0}),
    "null": (b"null", 200, {}),
    "a fraction drops all": (b'[{"Host":"n1","Score":1},{"Host":"n2","Score":1.5}]', 200, {}),
    "a whole fraction too": (b'[{"Host":"n1","Score":1.0}]', 200, {}),
    "no list": (b"{}", 200, {}),
    "status": (b'[{"Host":"n1","Score":1}]', 500, {}),
    "nothing": (b"", 200, {}),
}


@pytest.mark.parametrize(("body", "status", "want"), SCORED.values(), ids=SCORED)
async def test_prioritize_answers_are_read(body: bytes, status: int, want: dict[str, int]) -> None:
    assert await scores(body, status) == want


@pytest.mark.parametrize("body", [b'{"Error":""}', b"{}", b"null", b'{"error":null}'])
async def test_bind_succeeds(body: bytes) -> None:
    await bound(body)


REFUSED_BINDS = {
    "error": (b'{"Error":"card full"}', 200, "^card full$"),
    "status": (b'{"Error":""}', 500, "failed bind with extender at URL .*, code 500"),
    "nothing": (b"", 200, "^EOF$"),
}


@pytest.mark.parametrize(("body", "status", "message"), REFUSED_BINDS.values(), ids=REFUSED_BINDS)
async def test_failed_binds_raise_an_error(body: bytes, status: int, message: str) -> None:
    with pytest.raises(ExtenderError, match=message):
        await bound(body, status)
