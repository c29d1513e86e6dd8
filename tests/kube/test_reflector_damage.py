"""Damaged objects, lines and pages: each is reported and left out, and everything else goes on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.fakes.upstream import FakeUpstream, http_reply
from tests.kube.sinks import RecordingSink, run_reflector
from tests.support.recorded_api_calls import RecordedApiCalls, open_api
from vrampack.kube.api_caller import FOREIGN_CODE
from vrampack.kube.client import Api
from vrampack.kube.objects import PodObject


class DamagedStreamHarness:
    """A server that sends what a test gives it, byte for byte."""

    def __init__(self, server: FakeUpstream, api: Api) -> None:
        self.server, self.api = server, api
        self.sink: RecordingSink[PodObject] = RecordingSink()

    def will_list(self, *items: bytes, version: int = 1) -> None:
        body = b'{"kind":"PodList","metadata":{"resourceVersion":"%d"},"items":[%s]}' % (version, b",".join(items))
        self.server.replies.append(http_reply(body))

    async def send_line(self, line: bytes) -> None:
        await self.server.events.put(line + b"\n")

    def asked(self) -> list[bytes]:
        """The first line of every request."""
        return [request.partition(b" HTTP")[0] for request in self.server.requests]


@pytest.fixture
async def setting() -> AsyncIterator[DamagedStreamHarness]:
    async with FakeUpstream() as server, open_api(f"http://127.0.0.1:{server.port}") as api:
        yield DamagedStreamHarness(server, api)
        await server.events.put(b"")


def a_pod(name: str, version: int = 2, **more: object) -> bytes:
    metadata = {"namespace": "ml", "name": name, "uid": name, "resourceVersion": str(version)}
    return json.dumps({"metadata": metadata, **more}).encode()


def an_event(pod: bytes, kind: str = "MODIFIED") -> bytes:
    return b'{"type":"%s","object":%s}' % (kind.encode(), pod)


DAMAGED: dict[str, tuple[bytes, str]] = {
    "another type in a field": (a_pod("bad", spec={"priority": "high"}), "pods ml/bad: "),
    "a label that is no text": (
        b'{"metadata":{"namespace":"ml","name":"bad","resourceVersion":"2","labels":{"a":1}}}',
        "pods ml/bad: ",
    ),
    "no UTF-8": (b'{"metadata":{"name":"\xff","resourceVersion":"2"}}', "pods an unnamed object: "),
    "no object": (b"7", "pods an unnamed object: "),
    "null": (b"null", "pods an unnamed object: "),
    "nesting": (a_pod("bad", extra=json.loads("[" * 400 + "]" * 400), spec=7), "pods ml/bad: "),
    "a name of numbers": (b'{"metadata":{"name":7,"resourceVersion":"2"}}', "pods an unnamed object: "),
    "metadata of text": (b'{"metadata":"bad"}', "pods an unnamed object: "),
}


@pytest.mark.parametrize(("body", "words"), DAMAGED.values(), ids=DAMAGED)
async def test_a_damaged_object_of_a_list_is_left_out(setting: DamagedStreamHarness, body: bytes, words: str) -> None:
    setting.will_list(a_pod("a"), body, a_pod("b"))
    async with run_reflector(setting.api, setting.sink):
        await setting.sink.told_of("a", "b")
    (problem,) = setting.sink.problems
    assert problem.startswith(words)


@pytest.mark.parametrize(("body", "words"), DAMAGED.values(), ids=DAMAGED)
async def test_a_damaged_object_of_an_event_is_left_out(setting: DamagedStreamHarness, body: bytes, words: str) -> None:
    setting.will_list(a_pod("a"))
    async with run_reflector(setting.api, setting.sink):
        await setting.send_line(an_event(a_pod("b"), "ADDED"))
        await setting.send_line(an_event(body))
        await setting.send_line(an_event(a_pod("c", 3), "ADDED"))
        await setting.sink.told_of("a", "b", "c")
    (problem,) = setting.sink.problems
    assert problem.startswith(words)
    assert setting.sink.lists == ["start"]


async def test_a_damaged_object_still_advances_the_version(setting: DamagedStreamHarness) -> None:
    setting.will_list(a_pod("a"))
    async with run_reflector(setting.api, setting.sink):
        await setting.send_line(an_event(a_pod("bad", 9, spec={"priority": "high"})))
        await setting.sink.until(lambda: bool(setting.sink.problems))
        await setting.server.events.put(b"")
        await setting.send_line(an_event(a_pod("b", 10)))
        await setting.sink.told_of("a", "b")
    assert b"resourceVersion=9" in setting.asked()[-1]


NO_EVENTS: dict[str, bytes] = {
    "half a line": b'{"type":"MODIFIED","object":{"meta',
    "no JSON": b"upstream connect error",
    "a blank line": b"",
    "no type": b'{"object":{}}',
    "no object": b'{"type":"ADDED"}',
    "a type of no UTF-8": b'{"type":"\xff","object":{}}',
    "an error that is no status": b'{"type":"ERROR","object":"x"}',
    "an error of no UTF-8": b'{"type":"ERROR","object":{"message":"\xff"}}',
    "nesting without end": b'{"type":"ADDED","object":' + b"[" * 100_000,
    "an error of another kind": b'{"type":"ERROR","object":{"code":500,"message":"etcd is away"}}',
}


@pytest.mark.parametrize("line", NO_EVENTS.values(), ids=NO_EVENTS)
async def test_a_line_that_is_not_an_event_ends_the_watch_and_causes_a_new_list(
    setting: DamagedStreamHarness, line: bytes
) -> None:
    """A watch from the same version would bring the same line again. The client leaves without waiting for the server."""
    setting.will_list(a_pod("a"))
    async with run_reflector(setting.api, setting.sink):
        await setting.send_line(an_event(a_pod("b", 5)))
        await setting.sink.told_of("a", "b")
        setting.will_list(a_pod("a"), a_pod("c", 6), version=6)
        await setting.send_line(line)
        await setting.sink.told_of("a", "c")
    assert setting.sink.lists == ["start", "error"]
    assert setting.sink.problems == []


async def test_a_watch_cut_within_a_line_resumes_at_its_version(setting: DamagedStreamHarness) -> None:
    setting.will_list(a_pod("a"))
    async with run_reflector(setting.api, setting.sink):
        await setting.send_line(an_event(a_pod("b", 5)))
        await setting.sink.told_of("a", "b")
        await setting.server.events.put(an_event(a_pod("c", 6))[:40])
        await setting.server.events.put(b"")
        await setting.send_line(an_event(a_pod("c", 6)))
        await setting.sink.told_of("a", "b", "c")
    assert setting.sink.lists == ["start"]
    assert setting.sink.problems == []
    assert b"resourceVersion=5" in setting.asked()[-1]


async def test_an_event_larger_than_a_buffer_is_an_event_like_any_other(setting: DamagedStreamHarness) -> None:
    """An object of 1.5 MB whose every byte is escaped as six, as a pod's arguments may be."""
    setting.will_list(a_pod("a"))
    large = a_pod("large", 5, args=["\x01" * 1_500_000])
    assert len(large) > 9_000_000
    async with run_reflector(setting.api, setting.sink):
        await setting.send_line(an_event(large))
        await setting.send_line(an_event(a_pod("b", 6)))
        await setting.sink.told_of("a", "b", "large")
    assert setting.sink.lists == ["start"]


async def test_an_endless_line_is_abandoned_and_causes_a_new_list(setting: DamagedStreamHarness) -> None:
    setting.will_list(a_pod("a"))
    async with run_reflector(setting.api, setting.sink):
        await setting.sink.told_of("a")
        setting.will_list(a_pod("a"), a_pod("b", 6), version=6)
        for _ in range(5):
            await setting.server.events.put(b"x" * 4_000_000)
        await setting.server.events.put(b"")
        await setting.sink.told_of("a", "b")
    assert setting.sink.lists == ["start", "error"]


PAGES: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"<html>",
    "no list": b'{"kind":"Status"}',
    "a Status with empty metadata": b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","code":503}',
    "a list without a version": b'{"kind":"PodList","metadata":{},"items":[]}',
    "a list without a kind": b'{"metadata":{"resourceVersion":"1"},"items":[]}',
    "items of text": b'{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":"x"}',
    "no UTF-8": b'{"metadata":{"resourceVersion":"\xff"},"items":[]}',
    "nesting without end": b'{"metadata":' + b"[" * 100_000,
}


@pytest.mark.parametrize("body", PAGES.values(), ids=PAGES)
async def test_a_page_that_is_no_list_is_asked_for_again(setting: DamagedStreamHarness, body: bytes) -> None:
    calls = RecordedApiCalls()
    setting.api.add_observer(calls)
    setting.server.replies.append(http_reply(body))
    setting.will_list(a_pod("a"))
    async with run_reflector(setting.api, setting.sink):
        await setting.sink.told_of("a")
    assert setting.sink.told.count("list ends") == 1
    assert calls.made.count(("list", "pods", FOREIGN_CODE)) == 1


async def test_null_items_are_read_as_an_empty_list(setting: DamagedStreamHarness) -> None:
    setting.server.replies.append(
        http_reply(b'{"kind":"PodList","metadata":{"resourceVersion":"3","continue":""},"items":null}')
    )
    async with run_reflector(setting.api, setting.sink):
        await setting.send_line(an_event(a_pod("a", 4)))
        await setting.sink.told_of("a")
    assert setting.sink.told[:3] == ["list start", "page 0", "list ends"]
