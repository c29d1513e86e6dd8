"""Watches through the proxy: passed on as they are flushed, frozen, cut, and ended with an expired version."""

import asyncio
import json

import pytest

from tests.fakes.caller import LOST, RawHttpClient
from tests.fakes.proxy import FaultProxy
from tests.fakes.upstream import FakeUpstream

PODS = "/api/v1/pods?watch=true&resourceVersion=7"


def an_event(name: str) -> bytes:
    return json.dumps({"type": "ADDED", "object": {"metadata": {"name": name}}}).encode() + b"\n"


async def watching(caller: RawHttpClient, upstream: FakeUpstream) -> None:
    """Open a watch and see its first event."""
    await caller.send("GET", PODS)
    assert (await caller.head()).is_chunked
    await upstream.events.put(an_event("first"))
    assert await caller.chunk() == an_event("first")


async def test_each_event_is_passed_on_at_once_and_the_end_too() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        await watching(caller, upstream)
        await upstream.events.put(b"")
        assert await caller.chunk() == b""
        assert await caller.ask("GET", "/api/v1/pods") == (200, b"{}")
        assert upstream.connections == 1


async def test_a_caller_that_leaves_ends_the_watch_upstream() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy:
        async with RawHttpClient(proxy.port) as caller:
            await watching(caller, upstream)
        assert [watch.outcome for watch in await proxy.finished("GET", "watch")] == ["caller left"]


async def test_a_frozen_watch_keeps_its_connection_and_loses_nothing() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        await watching(caller, upstream)
        proxy.freeze_watches()
        for name in ("second", "third"):
            await upstream.events.put(an_event(name))
        async with RawHttpClient(proxy.port) as other:
            assert await other.ask("GET", "/api/v1/pods") == (200, b"{}")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await caller.chunk()
        proxy.thaw_watches()
        assert [await caller.chunk(), await caller.chunk()] == [an_event("second"), an_event("third")]


async def test_a_watch_opened_while_frozen_receives_no_bytes_at_all() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        proxy.freeze_watches("/pods")
        await caller.send("GET", PODS)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await caller.head()
        proxy.clear()
        assert (await caller.head()).status == 200


async def test_watches_of_another_kind_are_not_frozen() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        proxy.freeze_watches("/nodes")
        await watching(caller, upstream)


async def test_cut_watches_close_and_may_be_opened_again() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy:
        async with RawHttpClient(proxy.port) as caller:
            await watching(caller, upstream)
            assert proxy.cut_watches("/nodes") == 0
            assert proxy.cut_watches() == 1
            with pytest.raises(LOST):
                await caller.chunk()
        async with RawHttpClient(proxy.port) as caller:
            await caller.send("GET", PODS)
            assert (await caller.head()).status == 200


async def test_an_expired_watch_ends_with_an_error_event_of_code_410() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        await watching(caller, upstream)
        assert proxy.expire_watches() == 1
        event = json.loads(await caller.chunk())
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
        assert await caller.chunk() == b""
        assert await caller.rest() == b""
        assert proxy.matching("GET", "watch")[0].outcome == "expired"


async def test_a_watch_expires_after_the_event_that_is_on_its_way() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        await watching(caller, upstream)
        event = an_event("halves")
        await upstream.events.put(event[:9])
        assert await caller.chunk() == event[:9]
        proxy.expire_watches()
        await upstream.events.put(event[9:])
        assert await caller.chunk() == event[9:]
        assert b'"code": 410' in await caller.chunk()


async def test_a_watch_can_be_refused_with_410() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        proxy.when("GET", "watch=true").gone(times=1)
        assert (await caller.ask("GET", PODS))[0] == 410
        await watching(caller, upstream)
