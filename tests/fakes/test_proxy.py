"""The proxy forwards unchanged, and fails exactly where it is told to."""

import asyncio
import re
import ssl
from pathlib import Path

import pytest

from tests.fakes.caller import LOST, RawHttpClient
from tests.fakes.exchanges import Exchange
from tests.fakes.proxy import FaultProxy
from tests.fakes.upstream import FakeUpstream, http_reply
from tests.support.certificates import CertificateAuthority

BIND = "/api/v1/namespaces/ml/pods/a/binding"
ENDS = {
    "counted": http_reply(b'{"a":1}', 201, "X-Odd:  spaces kept "),
    "empty": b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nTrailer: t\r\n\r\n",
    "until closed": b"HTTP/1.1 200 OK\r\n\r\nabc",
    "after an interim reply": b"HTTP/1.1 103 Early Hints\r\n\r\n" + http_reply(),
}


def outcomes(exchanges: list[Exchange]) -> list[tuple[int | None, str]]:
    return [(exchange.status, exchange.outcome) for exchange in exchanges]


@pytest.mark.parametrize("reply", ENDS.values(), ids=ENDS)
async def test_requests_and_replies_pass_unchanged(reply: bytes) -> None:
    """Except interim replies, which no client here requests."""
    request = b"POST /a?b=%20 HTTP/1.1\r\nhOsT: x\r\nConnection: close\r\nX-Twice: 1\r\nX-Twice: 2\r\nContent-Length: 3\r\n\r\n{ }"
    async with (
        FakeUpstream(replies=[reply]) as upstream,
        FaultProxy(upstream.port) as proxy,
        RawHttpClient(proxy.port) as caller,
    ):
        await caller.send_raw(request)
        assert await caller.rest() == reply[reply.rindex(b"HTTP/1.1") :]
        assert upstream.requests == [request]


async def test_a_chunked_request_passes_unchanged_and_is_kept_without_its_framing() -> None:
    request = b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        await caller.send_raw(request)
        await caller.head()
        assert upstream.requests == [request]
        assert proxy.matching("POST", "/a")[0].body == b"abc"


async def test_a_reply_to_head_has_a_length_and_no_body() -> None:
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"
    async with (
        FakeUpstream(replies=[reply]) as upstream,
        FaultProxy(upstream.port) as proxy,
        RawHttpClient(proxy.port) as caller,
    ):
        assert await caller.ask("HEAD", "/") == (200, b"")
        assert await caller.ask("GET", "/") == (200, b"{}")


async def test_a_caller_that_expects_100_continue_gets_it() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        await caller.send_raw(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n")
        assert (await caller.head()).status == 100
        await caller.send_raw(b"1")
        assert (await caller.head()).status == 200
        assert upstream.requests[0].endswith(b"1")


async def test_one_connection_carries_many_requests() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        large = b"x" * 3_000_000
        for body in (b"", b"1", large):
            assert await caller.ask("POST", "/echo", body) == (200, b"{}")
        assert upstream.connections == 1
        assert upstream.requests[-1].endswith(large)


async def test_an_upstream_that_closed_an_idle_connection_is_dialled_again() -> None:
    async with (
        FakeUpstream(replies=[http_reply(b"1", 200, "Connection: keep-alive")]) as upstream,
        FaultProxy(upstream.port) as proxy,
        RawHttpClient(proxy.port) as caller,
    ):
        assert await caller.ask("GET", "/") == (200, b"1")
        await upstream.__aexit__()
        await upstream.__aenter__()
        assert await caller.ask("GET", "/") == (200, b"{}")


async def test_requests_are_counted_by_method_and_pattern() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        for method, target in (("GET", "/api/v1/pods?limit=500"), ("POST", BIND), ("GET", BIND)):
            await caller.ask(method, target)
        assert proxy.count("POST", r"/binding$") == 1
        assert proxy.count("*", r"/binding$") == 2
        assert proxy.count("GET", r"^/api/v1/pods\?.*limit") == 1


async def test_tls_on_both_sides(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "pki")
    ours = authority.build_server_tls()
    trust = ssl.create_default_context(cafile=authority.ca_file)
    async with FakeUpstream(tls=ours) as upstream, FaultProxy(upstream.port, tls=ours, upstream_tls=trust) as proxy:
        assert proxy.url == f"https://127.0.0.1:{proxy.port}"
        async with RawHttpClient(proxy.port, tls=trust) as caller:
            assert await caller.ask("POST", BIND, b"{}") == (200, b"{}")
            proxy.when("POST", "binding").cut_after_write()
            with pytest.raises(LOST):
                await caller.ask("POST", BIND, b"{}")
        assert len(upstream.requests) == 2


async def test_cut_before_forwarding_leaves_no_trace_upstream() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy:
        rule = proxy.when("POST", "binding").cut(times=1)
        async with RawHttpClient(proxy.port) as caller:
            with pytest.raises(LOST):
                await caller.ask("POST", BIND)
        async with RawHttpClient(proxy.port) as caller:
            assert await caller.ask("POST", BIND) == (200, b"{}")
        assert rule.hits == len(upstream.requests) == 1
        assert outcomes(proxy.matching("POST", "")) == [(None, "cut before forwarding"), (200, "answered")]


async def test_cut_after_the_write_loses_the_reply_of_a_request_that_was_served() -> None:
    async with FakeUpstream(replies=[http_reply(b"{}", 201)]) as upstream, FaultProxy(upstream.port) as proxy:
        rule = proxy.when("POST", "binding").cut_after_write(times=1)
        async with RawHttpClient(proxy.port) as caller:
            await caller.ask("GET", BIND)
            upstream.replies.append(http_reply(b"{}", 201))
            with pytest.raises(LOST):
                await caller.ask("POST", BIND)
        await proxy.reached(rule)
        assert len(upstream.requests) == 2
        assert outcomes(await proxy.finished("POST", "")) == [(201, "cut after the write")]


@pytest.mark.parametrize(
    ("status", "body", "want"),
    [
        (429, None, b'"reason": "TooManyRequests"'),
        (500, b"<html>", b"<html>"),
        (409, {"kind": "Status"}, b'{"kind": "Status"}'),
        (410, None, b'"reason": "Expired"'),
    ],
)
async def test_the_proxy_answers_without_forwarding_and_keeps_the_connection(
    status: int, body: bytes | dict[str, object] | None, want: bytes
) -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        proxy.when("POST", "binding").answer(status, body, times=2)
        for _ in range(2):
            got, text = await caller.ask("POST", BIND)
            assert got == status
            assert want in text
        assert upstream.requests == []
        assert await caller.ask("POST", BIND) == (200, b"{}")


async def test_a_scripted_answer_may_have_headers() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        proxy.when("*", "").answer(429, headers={"Retry-After": "1"})
        await caller.send("GET", "/")
        assert (await caller.head()).fields["retry-after"] == "1"
        assert upstream.requests == []


async def test_a_held_request_is_forwarded_when_released() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        rule = proxy.when("POST", "binding").hold()
        asked = asyncio.ensure_future(caller.ask("POST", BIND))
        await proxy.reached(rule)
        assert upstream.requests == []
        rule.release()
        assert await asked == (200, b"{}")


async def test_a_held_reply_comes_from_a_request_that_was_served() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        rule = proxy.when("POST", "binding").hold_reply()
        asked = asyncio.ensure_future(caller.ask("POST", BIND))
        await proxy.reached(rule)
        assert len(upstream.requests) == 1
        assert not asked.done()
        rule.release()
        assert await asked == (200, b"{}")


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_delay_ends_by_itself(side: str) -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        when = proxy.when("POST", "")
        rule = when.delay(0.05) if side == "before" else when.delay_reply(0.05)
        began = asyncio.get_running_loop().time()
        assert await caller.ask("POST", BIND) == (200, b"{}")
        assert asyncio.get_running_loop().time() - began >= 0.05
        assert rule.hits == len(upstream.requests) == 1


async def test_a_caller_that_leaves_while_held_is_never_forwarded() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy:
        rule = proxy.when("POST", "").hang()
        async with RawHttpClient(proxy.port) as caller:
            await caller.send("POST", BIND)
            await proxy.reached(rule)
        assert outcomes(await proxy.finished("POST", "")) == [(None, "caller left")]
        rule.release()
        await proxy.settled()
        assert upstream.requests == []


async def test_the_first_rule_with_turns_left_takes_the_request() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        proxy.when("GET", "/a").answer(500, times=1)
        second = proxy.when("GET", "/").answer(503)
        assert [(await caller.ask("GET", "/a"))[0] for _ in range(2)] == [500, 503]
        second.stop()
        assert (await caller.ask("GET", "/a"))[0] == 200
        assert len(upstream.requests) == 1


async def test_a_rule_may_look_at_the_body() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        rule = proxy.when("POST", "binding", body=rb'"name":"gpu-1"').answer(403)
        bodies = (b'{"target":{"name":"gpu-1"}}', b'{"target":{"name":"gpu-10"}}', b"")
        assert [(await caller.ask("POST", BIND, body))[0] for body in bodies] == [403, 200, 200]
        assert rule.hits == 1


async def test_clear_ends_all_faults() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        rule = proxy.when("GET", "").hold()
        asked = asyncio.ensure_future(caller.ask("GET", "/"))
        await proxy.reached(rule)
        proxy.clear()
        assert await asked == await caller.ask("GET", "/") == (200, b"{}")
        assert len(upstream.requests) == 2


async def test_a_closed_proxy_refuses_and_comes_back_on_its_port() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy:
        rule = proxy.when("POST", "").hang(times=1)
        async with RawHttpClient(proxy.port) as caller:
            await caller.send("POST", BIND)
            await proxy.reached(rule)
            await proxy.close()
            with pytest.raises(LOST):
                await caller.head()
        with pytest.raises(ConnectionRefusedError):
            await RawHttpClient(proxy.port).__aenter__()
        await proxy.start()
        async with RawHttpClient(proxy.port) as caller:
            assert await caller.ask("POST", BIND) == (200, b"{}")
        assert outcomes(proxy.matching("POST", "")) == [(None, "proxy closed"), (200, "answered")]


async def test_an_upstream_that_is_not_there_cuts_the_caller() -> None:
    async with FakeUpstream() as upstream:
        pass
    async with FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        with pytest.raises(LOST):
            await caller.ask("POST", BIND)
        assert proxy.matching("POST", "")[0].outcome.startswith("upstream failed: ")


async def test_a_caller_that_sends_no_http_is_cut() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy:
        for garbage in (b"\x00\x01\r\n\r\n" * 3, b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"a" * (1 << 21)):
            async with RawHttpClient(proxy.port) as caller:
                await caller.send_raw(garbage)
                await asyncio.wait({asyncio.ensure_future(caller.rest())})
        async with RawHttpClient(proxy.port) as caller:
            assert await caller.ask("GET", "/") == (200, b"{}")


async def test_a_wait_that_times_out_lists_what_was_seen() -> None:
    async with FakeUpstream() as upstream, FaultProxy(upstream.port) as proxy, RawHttpClient(proxy.port) as caller:
        await caller.ask("GET", "/a")
        with pytest.raises(
            TimeoutError, match=re.escape("2 of GET /a to arrive; the last requests: ['GET /a answered']")
        ):
            await proxy.seen("GET", "/a", 2, within=0.01)
