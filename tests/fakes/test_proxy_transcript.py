"""Between scheduler and extender the proxy writes one line per verb call. It can also run in a thread, for plain tests."""

import asyncio
import gzip
import json
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, RemoteDisconnected
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.auditor.binds import BindAnswer, read_binds
from tests.fakes.caller import LOST, RawHttpClient
from tests.fakes.proxy import FaultProxy
from tests.fakes.proxy_thread import FaultProxyThread
from tests.fakes.upstream import FakeUpstream, http_reply

BIND = "/gpushare-scheduler/bind"
ASKED = {"PodName": "a", "PodNamespace": "ml", "PodUID": "u", "Node": "n1"}
BODY = json.dumps(ASKED).encode()
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


ANSWERS = {
    "yes": (http_reply(b'{"Error":""}'), 200, {"Error": ""}, None, BindAnswer.YES),
    "no": (http_reply(b'{"Error":"card full"}'), 200, {"Error": "card full"}, None, BindAnswer.NO),
    "in chunks": (CHUNKED + b'c\r\n{"Error":""}\r\n0\r\n\r\n', 200, {"Error": ""}, None, BindAnswer.YES),
    "compressed": (http_reply(gzip.compress(b"{}"), 200, "Content-Encoding: gzip"), 200, {}, None, BindAnswer.YES),
    "status": (http_reply(b"oops", 500), 500, None, None, BindAnswer.NO),
    "garbage": (http_reply(b"oops"), 200, None, "answer is not JSON", BindAnswer.UNKNOWN),
}


@pytest.mark.parametrize(("reply", "status", "answer", "error", "said"), ANSWERS.values(), ids=ANSWERS)
async def test_a_line_has_request_and_answer(
    tmp_path: Path, reply: bytes, status: int, answer: object, error: str | None, said: BindAnswer
) -> None:
    """The auditor, which shares no code with the proxy, can read it."""
    file = tmp_path / "transcript.jsonl"
    async with (
        FakeUpstream(replies=[reply]) as upstream,
        FaultProxy(upstream.port, transcript=file) as proxy,
        RawHttpClient(proxy.port) as caller,
    ):
        await caller.ask("POST", BIND, BODY)
    (line,) = lines(file)
    assert isinstance(line.pop("t"), float)
    assert line == {"verb": "bind", "request": ASKED, "status": status, "answer": answer, "error": error}
    assert [call.said for call in read_binds([line])] == [said]


async def test_the_line_is_written_before_the_answer_is_passed_on(tmp_path: Path) -> None:
    file = tmp_path / "transcript.jsonl"
    async with (
        FakeUpstream() as upstream,
        FaultProxy(upstream.port, transcript=file) as proxy,
        RawHttpClient(proxy.port) as caller,
    ):
        await caller.send("POST", BIND, BODY)
        await caller.head()
        assert len(lines(file)) == 1


async def test_calls_without_an_answer_are_recorded_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "transcript.jsonl"
    async with FakeUpstream() as upstream, FaultProxy(upstream.port, transcript=file) as proxy:
        proxy.when("POST", "").cut(times=1)
        proxy.when("POST", "").cut_after_write(times=1)
        held = proxy.when("POST", "").hold_reply(times=1)
        proxy.when("POST", "").answer(503, {"Error": ""}, times=1)
        for _ in range(2):
            async with RawHttpClient(proxy.port) as caller:
                with pytest.raises(LOST):
                    await caller.ask("POST", BIND, BODY)
        async with RawHttpClient(proxy.port) as caller:
            await caller.send("POST", BIND, BODY)
            await proxy.reached(held)
        await proxy.settled()
        async with RawHttpClient(proxy.port) as caller:
            await caller.ask("POST", BIND, BODY)
            await caller.ask("GET", "/healthz")
    assert [line["error"] for line in lines(file)] == [
        "cut before forwarding",
        "cut after the write",
        "caller left",
        None,
    ]
    assert [call.said for call in read_binds(lines(file))] == [
        BindAnswer.UNKNOWN,
        BindAnswer.UNKNOWN,
        BindAnswer.UNKNOWN,
        BindAnswer.NO,
    ]


async def test_a_body_that_is_not_json_is_recorded_as_null(tmp_path: Path) -> None:
    file = tmp_path / "transcript.jsonl"
    async with (
        FakeUpstream() as upstream,
        FaultProxy(upstream.port, transcript=file) as proxy,
        RawHttpClient(proxy.port) as caller,
    ):
        await caller.ask("POST", "/gpushare-scheduler/filter?x=/y", b"\xff[")
    assert [(line["verb"], line["request"]) for line in lines(file)] == [("filter", None)]


async def test_settled_waits_for_calls_but_not_for_watches(tmp_path: Path) -> None:
    async with (
        FakeUpstream() as upstream,
        FaultProxy(upstream.port) as proxy,
        RawHttpClient(proxy.port) as one,
        RawHttpClient(proxy.port) as two,
    ):
        await one.send("GET", "/api/v1/pods?watch=1")
        rule = proxy.when("POST", "").hold()
        asked = asyncio.ensure_future(two.ask("POST", BIND))
        await proxy.reached(rule)
        with pytest.raises(TimeoutError):
            await proxy.settled(within=0.01)
        rule.release()
        await proxy.settled()
        assert (await asked)[0] == 200


@pytest.fixture
def plain_upstream() -> Iterator[int]:
    class Routes(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            """Keeps the tests' output quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Routes) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_the_proxy_thread_has_the_same_methods(plain_upstream: int, tmp_path: Path) -> None:
    file = tmp_path / "transcript.jsonl"
    with FaultProxyThread(plain_upstream, transcript=file) as proxy:
        proxy.when("POST", "bind").cut_after_write(times=1)
        with pytest.raises((RemoteDisconnected, ConnectionResetError)):
            post(proxy.port)
        assert post(proxy.port) == 200
        held = proxy.when("POST", "bind").hold(times=1)
        caller = threading.Thread(target=post, args=(proxy.port,))
        caller.start()
        proxy.reached(held)
        held.release()
        caller.join()
        proxy.settled()
        assert proxy.count("POST", "bind") == 3
        assert [exchange.outcome for exchange in proxy.finished("POST", "bind", 3)] == [
            "cut after the write",
            "answered",
            "answered",
        ]
    assert [line["error"] for line in lines(file)] == ["cut after the write", None, None]


def test_a_proxy_in_a_thread_can_be_closed_and_started_again(plain_upstream: int) -> None:
    with FaultProxyThread(plain_upstream) as proxy:
        port = proxy.port
        proxy.close()
        with pytest.raises(ConnectionRefusedError):
            post(port)
        proxy.start()
        assert post(port) == 200
        assert (proxy.cut_watches(), proxy.expire_watches()) == (0, 0)


def test_a_port_that_is_taken_leaves_no_thread_behind(plain_upstream: int) -> None:
    before = threading.active_count()
    with FaultProxyThread(plain_upstream) as proxy, pytest.raises(OSError, match="in use"):
        FaultProxyThread(plain_upstream, port=proxy.port).__enter__()
    assert threading.active_count() == before


def post(port: int) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", BIND, BODY)
        return connection.getresponse().status
    finally:
        connection.close()
