"""Which connection is closed when a listener is full, and that closed connections are not counted."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack

from fastapi import FastAPI

from tests.support.verb_listener import build_request, is_cut, open_connection, read_reply, run_listener
from vrampack.http.open_connections import ConnectionLimits, OpenConnections


class ListedConnection:
    """A connection that records what was done to it."""

    def __init__(self, peer: str = "10.0.0.1", *, is_answering: bool = False) -> None:
        self.peer = peer
        self.is_answering = is_answering
        self.is_closed = False

    def close_for_room(self) -> None:
        self.is_closed = True


def a_table(*, total: int = 3, per_peer: int = 3) -> OpenConnections:
    return OpenConnections(ConnectionLimits(total=total, per_peer=per_peer, keep_alive_seconds=5))


def closed(*connections: ListedConnection) -> list[bool]:
    return [each.is_closed for each in connections]


def test_the_longest_idle_connection_is_closed_first() -> None:
    table = a_table()
    first, second, third, fourth, fifth = crowd = [ListedConnection() for _ in range(5)]
    for each in (first, second, third):
        table.add_connection(each)
    table.note_request(first)
    table.add_connection(fourth)
    assert closed(*crowd) == [False, True, False, False, False]
    table.add_connection(fifth)
    assert closed(first, third) == [False, True]
    assert len(table) == 3


def test_a_connection_that_waits_for_its_answer_is_kept() -> None:
    table = a_table(total=2)
    asked, idle, new = ListedConnection(is_answering=True), ListedConnection(), ListedConnection()
    for each in (asked, idle, new):
        table.add_connection(each)
    assert closed(asked, idle, new) == [False, True, False]
    new.is_answering = True
    late = ListedConnection()
    table.add_connection(late)
    assert closed(asked, new, late) == [False, False, True]


def test_many_connections_of_one_address_displace_only_each_other() -> None:
    table = a_table(total=10, per_peer=2)
    probe = ListedConnection("10.0.0.9")
    table.add_connection(probe)
    crowd = [ListedConnection() for _ in range(5)]
    for each in crowd:
        table.add_connection(each)
    assert closed(probe, *crowd) == [False, True, True, True, False, False]


def test_a_closed_connection_is_not_counted() -> None:
    table = a_table(total=1)
    for _ in range(3):
        made = ListedConnection()
        table.add_connection(made)
        table.remove_connection(made)
        table.remove_connection(made)
        assert not made.is_closed
    assert (len(table), table._by_peer) == (0, {})


def test_a_full_listener_closes_idle_connections_and_answers_complete_requests() -> None:
    """With real connections: the parser knows how far a request has come."""
    app = FastAPI()
    has_begun, may_answer = threading.Event(), threading.Event()

    @app.post("/slow")
    async def slow() -> str:
        has_begun.set()
        await asyncio.to_thread(may_answer.wait, 10)
        return "at last"

    limits = ConnectionLimits(total=3, per_peer=3, keep_alive_seconds=60)
    call = build_request("/slow", b"{}")
    with ExitStack() as stack, run_listener(app, receive_seconds=60, limits=limits) as at:
        asked, half, idle = (stack.enter_context(open_connection(at)) for _ in range(3))
        asked.sendall(call)
        assert has_begun.wait(10)
        half.sendall(call[:-1])
        idle.sendall(build_request("/nothing", b""))
        assert read_reply(idle)[0] == 404
        stack.enter_context(open_connection(at))
        assert is_cut(half)
        stack.enter_context(open_connection(at))
        assert is_cut(idle)
        may_answer.set()
        assert read_reply(asked) == (200, b'"at last"')
