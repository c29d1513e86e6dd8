"""A caller that does not take its answers is not read any further, and all that it has sent is answered in turn once it does."""

from __future__ import annotations

import asyncio
import re
import select
from collections.abc import Sequence
from typing import Self

import pytest
from fastapi import FastAPI, Request, Response
from uvicorn.server import ServerState

from extender.http.protocol import VerbProtocol, build_protocol
from extender.http.server import build_server
from extender.http.timed_verbs import SyncVerb
from extender.metrics import ExtenderMetrics
from extender.wire.codec import VerbResponse
from tests.support.verb_listener import build_request, ignore_fault, open_connection, run_listener

HIGH_WATER = 65_536
CHUNK_BYTES = 262_144
"""What the event loop reads at a time."""


class UnreadTransport(asyncio.Transport):
    """A connection whose caller takes nothing until `take_all`."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: VerbProtocol | None = None
        self.unsent = b""
        self.is_read = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        was_low = len(self.unsent) <= HIGH_WATER
        self.unsent += data
        if was_low and len(self.unsent) > HIGH_WATER and self.protocol is not None:
            self.protocol.pause_writing()

    def writelines(self, pieces: Sequence[bytes]) -> None:  # type: ignore[override]  # what the protocol gives
        self.write(b"".join(pieces))

    def take_all(self) -> bytes:
        taken, self.unsent = self.unsent, b""
        if len(taken) > HIGH_WATER and self.protocol is not None:
            self.protocol.resume_writing()
        return taken

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def get_extra_info(self, _name: str, default: object = None) -> object:
        return default

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass


class PacedConnection:
    """A listener's connection on this event loop, to which bytes are given as they would be read."""

    def __init__(self, answer: bytes) -> None:
        self.calls: list[bytes] = []
        self.transport = UnreadTransport()

        def answer_call(body: bytes) -> VerbResponse:
            self.calls.append(body)
            return VerbResponse(answer)

        protocol = build_protocol({"/filter": SyncVerb("filter", answer_call, ExtenderMetrics("test"), ignore_fault)})
        config = build_server(FastAPI(), tls=None, receive_seconds=5, protocol=protocol).config
        config.load()
        kind: type[VerbProtocol] = config.http_protocol_class  # type: ignore[assignment]  # the one above
        self.protocol = kind(config, ServerState(), {})
        self.transport.protocol = self.protocol

    async def __aenter__(self) -> Self:
        self.protocol.connection_made(self.transport)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.protocol.connection_lost(None)
        await run_loop()

    async def send_as_read(self, data: bytes) -> None:
        """Feed it all that its transport would read."""
        for at in range(0, len(data), CHUNK_BYTES):
            if self.transport.is_read:
                self.protocol.data_received(data[at : at + CHUNK_BYTES])
            await run_loop()


async def run_loop() -> None:
    """As many turns as everything that is ready now may need."""
    for _ in range(50):
        await asyncio.sleep(0)


def filters(count: int) -> bytes:
    return b"".join(build_request("/filter", b"%d" % number) for number in range(count))


async def test_a_caller_that_reads_no_answers_is_not_read_any_further() -> None:
    """1,500 requests behind one another, answers of 200 KB: one is over the mark, and one may be under way behind it."""
    async with PacedConnection(answer=bytes(200_000)) as connection:
        await connection.send_as_read(filters(1500))
        assert not connection.transport.is_read
        assert len(connection.calls) <= 2
        assert len(connection.protocol.pipeline) < 100
        assert len(connection.transport.unsent) <= HIGH_WATER + 2 * 200_100


async def test_only_one_of_many_queued_requests_is_answered_per_loop_turn() -> None:
    async with PacedConnection(answer=b"") as connection:
        connection.protocol.data_received(filters(100))
        assert len(connection.calls) == 1


async def test_queued_requests_are_bounded() -> None:
    """The shortest ones, whose answers are taken: what waits is what fits into one piece of what was read."""
    longest = 0
    async with PacedConnection(answer=b"") as connection:
        for _ in range(20):
            if connection.transport.is_read:
                connection.protocol.data_received(b"GET / HTTP/1.1\r\n\r\n" * (CHUNK_BYTES // 18))
            longest = max(longest, len(connection.protocol.pipeline))
            await asyncio.sleep(0)
            connection.transport.take_all()
    assert 0 < longest <= 300


@pytest.mark.parametrize("answer", [b"x", b"x" * 200_000], ids=["short answers", "long answers"])
def test_all_requests_are_answered_in_order_once_the_caller_reads(answer: bytes) -> None:
    """Over a real socket: 100 requests at once, and then their answers."""
    verb = SyncVerb(
        "filter", lambda body: VerbResponse(b"<%b>%b" % (body, answer)), ExtenderMetrics("test"), ignore_fault
    )
    app = FastAPI()

    @app.post("/filter")
    async def answer_behind_another(request: Request) -> Response:
        found = verb.answer_call(await request.body())
        assert isinstance(found, VerbResponse)
        return Response(found.body)

    unsent, received = filters(100), bytearray()
    with (
        run_listener(app, receive_seconds=5, protocol=build_protocol({"/filter": verb})) as address,
        open_connection(address) as client,
    ):
        while not received.endswith(b"<99>" + answer):
            readable, writable, _ = select.select([client], [client] if unsent else [], [], 10)
            assert readable or writable, "no more answers come"
            unsent = unsent[client.send(unsent) :] if writable else unsent
            received += client.recv(1 << 20) if readable else b""
    assert re.findall(rb"<(\d+)>", received) == [b"%d" % number for number in range(100)]
