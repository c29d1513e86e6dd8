"""Verbs answered by the protocol: whatever a caller does, the answer is the one that the routes give."""

from __future__ import annotations

import asyncio
import json
import re
import select
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest
import uvloop
from fastapi import FastAPI

from extender.http.protocol import build_protocol
from extender.http.server import build_server
from extender.http.timed_verbs import MAX_BODY_BYTES, MAX_HELD_BYTES, AsyncCall, AsyncVerb, SyncVerb
from extender.metrics import ExtenderMetrics
from extender.wire.codec import VerbResponse
from tests.support import recorded_requests
from tests.support.in_memory_extender import PREFIX, InMemoryExtender
from tests.support.verb_listener import (
    Address,
    build_request,
    ignore_fault,
    is_cut,
    open_connection,
    read_reply,
    read_whole_reply,
    run_listener,
)
from vrampack.http.listener import open_listener

BODY = recorded_requests.read_recording("filter.ncc-true.scheduler-1.36.3.json")
FILTER = build_request(f"{PREFIX}/filter", BODY)
HEAD, _, _ = FILTER.partition(b"\r\n\r\n")


def chunked(body: bytes) -> bytes:
    half = len(body) // 2
    parts = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:half], body[half:], b""))
    return f"POST {PREFIX}/filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + parts


def with_header(header: bytes) -> bytes:
    return HEAD + b"\r\n" + header + b"\r\n\r\n" + BODY


CALLS = {
    "filter": FILTER,
    "prioritize": build_request(f"{PREFIX}/prioritize", BODY),
    "rubbish": build_request(f"{PREFIX}/filter", b"rubbish"),
    "rubbish for prioritize": build_request(f"{PREFIX}/prioritize", b"rubbish"),
    "no body": build_request(f"{PREFIX}/filter", b""),
    "in chunks": chunked(BODY),
    "HTTP/1.0": FILTER.replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "Connection: close": with_header(b"Connection: close"),
    "an upgrade": with_header(b"Connection: Upgrade\r\nUpgrade: h2c"),
    "another method": FILTER.replace(b"POST", b"PUT", 1),
    "a query": FILTER.replace(b"/filter ", b"/filter?x=1 ", 1),
    "a path in disguise": FILTER.replace(b"/filter ", b"/%66ilter ", 1),
    "another path": FILTER.replace(b"/filter ", b"/filters ", 1),
    "a verb that waits": build_request(f"{PREFIX}/bind", b"{}"),
    "announced too large": HEAD.replace(b"Content-Length: ", b"Content-Length: 99999", 1) + b"\r\n\r\n",
}


def waiting_verb(call: AsyncCall) -> AsyncVerb:
    return AsyncVerb("filter", call, ExtenderMetrics("test"), ignore_fault)


@pytest.fixture(scope="module")
def addresses() -> Iterator[tuple[Address, Address]]:
    """The same extender with its protocol, and with its routes alone."""
    extender = InMemoryExtender(recorded_requests.recorded_nodes(), recorded_requests.recorded_pods())
    with ExitStack() as stack:
        yield (
            stack.enter_context(run_listener(extender.app, receive_seconds=5, protocol=extender.protocol)),
            stack.enter_context(run_listener(extender.app, receive_seconds=5)),
        )


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_protocol_and_routes_give_the_same_answer(addresses: tuple[Address, Address], call: bytes) -> None:
    """Byte for byte, but for the time in the head."""
    replies = []
    for address in addresses:
        with open_connection(address) as client:
            client.sendall(call)
            replies.append(re.sub(rb"\r\ndate: [^\r]+", b"", read_whole_reply(client)))
    assert replies[0] == replies[1]


def test_a_request_split_at_any_byte_is_read(addresses: tuple[Address, Address]) -> None:
    with open_connection(addresses[0]) as client:
        for at in (1, 10, len(HEAD), len(HEAD) + 2, len(HEAD) + 4, len(HEAD) + 5, len(FILTER) - 1):
            client.sendall(FILTER[:at])
            client.sendall(FILTER[at:])
            assert read_reply(client)[0] == 200


def test_pipelined_requests_are_answered_in_order(addresses: tuple[Address, Address]) -> None:
    """A request behind a verb that waits is not answered before it."""
    bind = build_request(
        f"{PREFIX}/bind", json.dumps(dict.fromkeys(("PodName", "PodNamespace", "PodUID", "Node"), "x")).encode()
    )
    with open_connection(addresses[0]) as client:
        client.sendall(bind + FILTER)
        received = b""
        while received.count(b"HTTP/1.1 200 OK") < 2 or not received.endswith(b'"Error":""}'):
            received += client.recv(65536)
        assert received.index(b'"Error":"pod x/x') < received.index(b'"NodeNames"')
        client.sendall(FILTER + FILTER)
        received = b""
        while received.count(b'"Error":""}') < 2:
            received += client.recv(65536)


def test_a_body_that_grows_too_large_is_refused_and_the_connection_closed(addresses: tuple[Address, Address]) -> None:
    with open_connection(addresses[0]) as client:
        client.sendall(f"POST {PREFIX}/filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        part = b"10000\r\n" + bytes(0x10000) + b"\r\n"
        for _ in range(MAX_BODY_BYTES // 0x10000):
            client.sendall(part)
        client.sendall(b"1\r\nx\r\n")
        assert select.select([client], [], [], 3)[0], "it is answered without waiting for the end"
        assert read_reply(client)[0] == 413
        client.sendall(part + b"0\r\n\r\n")
        assert is_cut(client)


def send_half_of_largest_body(client: socket.socket, head: bytes = b"") -> None:
    lines = f"POST {PREFIX}/filter HTTP/1.1\r\nHost: x\r\nContent-Length: {MAX_BODY_BYTES}\r\n".encode()
    client.sendall(lines + head + b"\r\n" + b" " * (MAX_BODY_BYTES - 1))


def test_the_longest_arriving_half_sent_bodies_are_dropped(addresses: tuple[Address, Address]) -> None:
    """Whether the protocol or the routes read them; what a scheduler sends meanwhile is answered."""
    crowd = [open_connection(addresses[0]) for _ in range(MAX_HELD_BYTES // MAX_BODY_BYTES + 1)]
    with ExitStack() as stack:
        for number, client in enumerate(crowd):
            stack.enter_context(client)
            send_half_of_largest_body(client, b"" if number else b"Connection: close\r\n")
            caller = stack.enter_context(open_connection(addresses[0]))
            caller.sendall(FILTER)
            assert read_reply(caller)[0] == 200
        by_routes, refused, *kept = crowd
        assert is_cut(by_routes)
        assert read_reply(refused)[0] == 503
        refused.sendall(b" ")
        assert is_cut(refused)
        for client in kept:
            client.sendall(b" ")
            assert read_reply(client)[0] == 200


def test_a_caller_that_hangs_up_harms_no_other(addresses: tuple[Address, Address]) -> None:
    for at in (10, len(HEAD) + 6, len(FILTER)):
        with open_connection(addresses[0]) as client:
            client.sendall(FILTER[:at])
    with open_connection(addresses[0]) as client:
        client.sendall(FILTER)
        assert read_reply(client)[0] == 200


async def _talk(address: Address, begun: asyncio.Event, stopped: asyncio.Event) -> bytes:
    """A request whose last byte follows when the service is stopping."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(FILTER[:-1])
    await begun.wait()
    await stopped.wait()
    writer.write(FILTER[-1:])
    answer = await reader.read()
    writer.close()
    return answer


async def _stop_amid_a_request(arrived: list[bytes]) -> bytes:
    begun, stopped = asyncio.Event(), asyncio.Event()

    def decide(body: bytes) -> VerbResponse:
        arrived.append(body)
        return VerbResponse(b"{}")

    base = build_protocol({f"{PREFIX}/filter": SyncVerb("filter", decide, ExtenderMetrics("test"), ignore_fault)})

    class Noted(base):  # type: ignore[misc,valid-type]  # made for this test
        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            begun.set()

    listener = open_listener("127.0.0.1", 0)
    server = build_server(FastAPI(), tls=None, receive_seconds=5, protocol=Noted)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve(sockets=[listener]))
        talk = group.create_task(_talk(listener.getsockname(), begun, stopped))
        await begun.wait()
        for each in server.server_state.connections:
            each.shutdown()
        stopped.set()
        await talk
        server.should_exit = True
    return talk.result()


def test_a_request_that_has_begun_is_answered_before_the_service_stops() -> None:
    arrived: list[bytes] = []
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        answer = runner.run(_stop_amid_a_request(arrived))
    assert answer.endswith(b"\r\n\r\n{}")
    assert arrived == [BODY]


async def _stop_amid_a_decision() -> bytes:
    """Two calls on one connection: the first is being decided when the service stops, the second stands behind it."""
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def deliberate(_: bytes) -> VerbResponse:
        begun.set()
        await may_end.wait()
        return VerbResponse(b'{"decided":1}')

    listener = open_listener("127.0.0.1", 0)
    server = build_server(
        FastAPI(), tls=None, receive_seconds=5, protocol=build_protocol({f"{PREFIX}/filter": waiting_verb(deliberate)})
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(FILTER + FILTER)
        await begun.wait()
        for each in server.server_state.connections:
            each.shutdown()
        may_end.set()
        answer = await reader.read()
        writer.close()
        server.should_exit = True
    return answer


def test_a_call_that_is_being_decided_is_answered_before_the_service_stops() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        answer = runner.run(_stop_amid_a_decision())
    assert answer.endswith(b'\r\n\r\n{"decided":1}')
    assert answer.count(b"HTTP/1.1 200 OK") == 1


def test_a_caller_that_hangs_up_during_a_decision_does_not_end_it() -> None:
    decided = threading.Event()
    may_end = threading.Event()

    async def deliberate(_: bytes) -> VerbResponse:
        await asyncio.to_thread(may_end.wait, 10)
        decided.set()
        return VerbResponse(b"{}")

    with run_listener(
        FastAPI(), receive_seconds=5, protocol=build_protocol({f"{PREFIX}/filter": waiting_verb(deliberate)})
    ) as address:
        with open_connection(address) as client:
            client.sendall(FILTER)
        may_end.set()
        assert decided.wait(10)


def test_a_caller_that_closes_its_sending_side_still_gets_its_answer(addresses: tuple[Address, Address]) -> None:
    for address in addresses:
        with open_connection(address) as client:
            client.sendall(FILTER)
            client.shutdown(socket.SHUT_WR)
            assert read_reply(client)[0] == 200
            assert is_cut(client)


def test_a_caller_that_closes_its_sending_side_during_a_decision_still_gets_its_answer() -> None:
    closed = threading.Event()

    async def deliberate(_: bytes) -> VerbResponse:
        await asyncio.to_thread(closed.wait, 10)
        return VerbResponse(b'{"decided":1}')

    base = build_protocol({f"{PREFIX}/filter": waiting_verb(deliberate)})

    class Noted(base):  # type: ignore[misc,valid-type]  # made for this test
        def eof_received(self) -> bool:
            is_open: bool = super().eof_received()
            closed.set()
            return is_open

    with (
        run_listener(FastAPI(), receive_seconds=5, protocol=Noted) as address,
        open_connection(address) as client,
    ):
        client.sendall(FILTER)
        client.shutdown(socket.SHUT_WR)
        assert read_reply(client) == (200, b'{"decided":1}')
        assert is_cut(client)


UPGRADES = {"h2c": CALLS["an upgrade"], "CONNECT": FILTER.replace(b"POST", b"CONNECT", 1)}


@pytest.mark.parametrize("call", UPGRADES.values(), ids=UPGRADES)
def test_a_connection_that_the_parser_reads_no_more_is_closed(addresses: tuple[Address, Address], call: bytes) -> None:
    """Left open, it would not answer its next request."""
    for address in addresses:
        with open_connection(address) as client:
            client.sendall(call)
            read_reply(client)
            assert is_cut(client)


def test_an_answer_is_sent_in_one_write() -> None:
    """Two writes would be two packets, and the second may wait for the first one's acknowledgement."""
    written: list[bytes] = []
    verb = SyncVerb("filter", lambda _: VerbResponse(b"{}"), ExtenderMetrics("test"), ignore_fault)
    base = build_protocol({f"{PREFIX}/filter": verb})

    class Noted(base):  # type: ignore[misc,valid-type]  # made for this test
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self.transport = _Noting(transport, written)

    with run_listener(FastAPI(), receive_seconds=5, protocol=Noted) as address, open_connection(address) as client:
        client.sendall(FILTER)
        assert read_reply(client) == (200, b"{}")
    assert len(written) == 1


class _Noting:
    """A transport that takes note of what is written."""

    def __init__(self, transport: asyncio.Transport, written: list[bytes]) -> None:
        self._transport = transport
        self._written = written

    def writelines(self, pieces: Sequence[bytes]) -> None:
        self._written.append(b"".join(pieces))
        self._transport.writelines(pieces)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()
