"""The listener on a real socket: deadlines for slow callers, patience with idle ones, caps, and quick replies."""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from fastapi import FastAPI

from extender.http.timed_verbs import MAX_BODY_BYTES, TOO_LARGE
from extender.http.uvicorn_protocol import MAX_HEAD_BYTES, PacedProtocol
from tests.support import recorded_requests
from tests.support.in_memory_extender import PREFIX, InMemoryExtender
from tests.support.verb_listener import Address, build_request, is_cut, open_connection, read_reply, run_listener
from vrampack.http.listener import open_listener

DEADLINE_SECONDS = 0.3
FILTER = build_request(f"{PREFIX}/filter", recorded_requests.read_recording("filter.ncc-true.scheduler-1.36.3.json"))
PATIENCE_SECONDS = 60
"""Longer than any test."""
SLOW_LORISES = 100


@pytest.fixture(scope="module", params=["by the protocol", "by the routes"])
def address(request: pytest.FixtureRequest) -> Iterator[Address]:
    """The recorded cluster behind a listener with a short deadline."""
    extender = InMemoryExtender(recorded_requests.recorded_nodes(), recorded_requests.recorded_pods())
    protocol = extender.protocol if request.param == "by the protocol" else PacedProtocol
    with run_listener(extender.app, receive_seconds=DEADLINE_SECONDS, protocol=protocol) as at:
        yield at


def test_a_recorded_raw_request_is_answered(address: Address) -> None:
    with open_connection(address) as client:
        client.sendall((recorded_requests.FOLDER / "raw-http-request.filter.bin").read_bytes())
        status, body = read_reply(client)
    assert status == 200
    assert b'"FailedNodes":{"gpu-node-' in body


@pytest.mark.parametrize(
    "beginning",
    [b"", b"P", b"POST /gpushare-scheduler/filter HTTP/1.1\r\nHost: x\r\n", FILTER[:-1], FILTER + FILTER[:-1]],
    ids=["silent", "a letter", "half a head", "a body without its end", "a second request without its end"],
)
def test_an_unfinished_request_is_cut_at_the_deadline(address: Address, beginning: bytes) -> None:
    with open_connection(address) as client:
        started = time.monotonic()
        client.sendall(beginning)
        if beginning.startswith(FILTER):
            assert read_reply(client)[0] == 200
        assert is_cut(client)
        assert time.monotonic() - started > DEADLINE_SECONDS * 0.9


@pytest.mark.parametrize("head", [b"POST /x HTTP/1.1\r\nX: ", FILTER.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"])
def test_a_trickle_does_not_extend_the_deadline(address: Address, head: bytes) -> None:
    with open_connection(address) as client:
        client.sendall(head)
        bytes_sent = 0
        while not select.select([client], [], [], 0.02)[0]:
            client.sendall(b" ")
            bytes_sent += 1
        assert is_cut(client)
    assert bytes_sent > 3


def test_trickling_clients_are_all_cut(address: Address) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(open_connection(address)) for _ in range(SLOW_LORISES)]
        for client in slow:
            client.sendall(FILTER[:40])
        assert all(is_cut(client) for client in slow)


def test_slow_clients_do_not_delay_others() -> None:
    """Others are answered while the server still waits for the slow ones."""
    extender = InMemoryExtender(recorded_requests.recorded_nodes(), recorded_requests.recorded_pods())
    with run_listener(extender.app, receive_seconds=PATIENCE_SECONDS) as at, ExitStack() as stack:
        slow = [stack.enter_context(open_connection(at)) for _ in range(SLOW_LORISES)]
        for client in slow:
            client.sendall(FILTER[:40])
        with open_connection(at) as client:
            for _ in range(20):
                client.sendall(FILTER)
                assert read_reply(client)[0] == 200
        assert select.select(slow, [], [], 0)[0] == [], "somebody was cut"


def test_an_idle_connection_outlives_the_deadline(address: Address) -> None:
    """A scheduler keeps idle connections for 90 s, and loses the request that meets a closing one."""
    with open_connection(address) as client:
        for _ in range(3):
            client.sendall(FILTER)
            assert read_reply(client)[0] == 200
            assert select.select([client], [], [], 1.5 * DEADLINE_SECONDS)[0] == []


def test_the_deadline_is_for_the_request_not_for_our_answer() -> None:
    """A bind takes as long as it takes: once the request is here, the connection is not cut."""
    app = FastAPI()
    may_answer = threading.Event()

    @app.post("/slow")
    async def slow() -> str:
        await asyncio.to_thread(may_answer.wait, 10)
        return "at last"

    with run_listener(app, receive_seconds=0.05) as at, open_connection(at) as client:
        client.sendall(build_request("/slow", b"{}"))
        assert select.select([client], [], [], 0.25)[0] == []
        may_answer.set()
        assert read_reply(client) == (200, b'"at last"')


def test_a_fault_of_the_application_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """And the listener logs nothing else, from its start to its end."""
    app = FastAPI()

    @app.post("/fault")
    async def raise_fault() -> None:
        raise ArithmeticError("a fault of ours")

    caplog.set_level(logging.INFO)
    with run_listener(app, receive_seconds=5) as at, open_connection(at) as client:
        client.sendall(build_request("/fault", b"{}"))
        assert read_reply(client)[0] == 500
    logged = [(record.levelname, record.getMessage().strip()) for record in caplog.records if record.name != "asyncio"]
    assert logged == [("ERROR", "Exception in ASGI application")]


def test_a_body_that_is_announced_too_large_is_refused_unread(address: Address) -> None:
    with open_connection(address) as client:
        client.sendall(f"POST {PREFIX}/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 107374182400\r\n\r\n".encode())
        assert read_reply(client) == (413, TOO_LARGE.body)
        # Nothing more comes: the connection does not hang.
        assert is_cut(client)


def test_a_client_that_sends_its_large_body_anyway_is_answered_413(address: Address) -> None:
    with open_connection(address) as client:
        client.sendall(build_request(f"{PREFIX}/bind", bytes(MAX_BODY_BYTES + 1)))
        assert read_reply(client)[0] == 413


def test_a_chunked_body_is_refused_at_the_cap(address: Address) -> None:
    chunk = b"100000\r\n" + bytes(0x100000) + b"\r\n"
    with open_connection(address) as client:
        client.sendall(f"POST {PREFIX}/filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        sent = 0
        while not select.select([client], [], [], 0)[0]:
            sent += 1
            try:
                client.sendall(chunk)
            except ConnectionError:
                break  # closed while this chunk was under way; the answer came before
        assert read_reply(client) == (413, TOO_LARGE.body)
    assert MAX_BODY_BYTES < sent * 0x100000 < 4 * MAX_BODY_BYTES


def test_endless_headers_are_refused(address: Address) -> None:
    with open_connection(address) as client:
        client.sendall(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * (MAX_HEAD_BYTES // 6))
        assert read_reply(client) == (431, b"")
        assert is_cut(client)


@pytest.mark.parametrize("rubbish", [b"\x16\x03\x01\x02\x00\x01\x00", b"\x00" * 100, b"NOT HTTP\r\n\r\n"])
def test_bytes_that_are_not_http_are_refused(address: Address, rubbish: bytes) -> None:
    with open_connection(address) as client:
        client.sendall(rubbish)
        assert client.recv(12) == b"HTTP/1.1 400"


def test_a_reply_is_sent_without_delay(address: Address) -> None:
    """Nagle's delay would cost 40 ms a call. That the protocol writes once is tested beside it."""
    times = []
    with open_connection(address) as client:
        for _ in range(50):
            started = time.monotonic()
            client.sendall(FILTER)
            assert read_reply(client)[0] == 200
            times.append(time.monotonic() - started)
    assert sorted(times)[25] < 0.04


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            open_listener("127.0.0.1", port)
