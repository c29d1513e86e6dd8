"""Processes on real sockets: what they hold is counted, up to the limit, and is given back when they end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.preload_clients import MIB, PreloadClient, PreloadClientProcess, build_question
from tests.support.preload_node import APP, DRIVER, OTHER, PreloadNode, read_used_mib, wait_until_true
from vrampack.agent.limits.preload.rate_limit import RateLimits
from vrampack.agent.limits.preload.wire import (
    ONLY_CARD,
    QUESTION,
    LibraryAnswer,
    LibraryVerdict,
    MessageKind,
    write_question,
)
from vrampack.agent.limits.workload import ResolvedContainer, Unresolved


@pytest.fixture
def node(tmp_path: Path) -> PreloadNode:
    return PreloadNode(tmp_path)


async def test_a_process_may_hold_up_to_the_limit_of_its_container(node: PreloadNode) -> None:
    async with node.run_back_end(), node.start_client() as first, node.start_client() as second:
        for program in (first, second):
            await program.open(node.path)
            assert (await program.ask(MessageKind.HELLO)).verdict is LibraryVerdict.YES
        assert (await first.ask(MessageKind.HOLD, (0, 3000))).verdict is LibraryVerdict.YES
        # 4301 - 3000 = 1301
        assert await second.ask(MessageKind.HOLD, (0, 1302)) == LibraryAnswer(
            LibraryVerdict.NO, 1, 1, 4301 * MIB, 3000 * MIB
        )
        assert await second.ask(MessageKind.HOLD, (0, 1301)) == LibraryAnswer(
            LibraryVerdict.YES, 1, 1, 4301 * MIB, 4301 * MIB
        )


async def test_hello_is_answered_with_limit_usage_and_driver(node: PreloadNode) -> None:
    async with node.run_back_end(), node.start_client() as program:
        await program.open(node.path)
        answer = await program.ask(MessageKind.HELLO, (0, 500))
    assert answer == LibraryAnswer(LibraryVerdict.YES, 1, 1, 4301 * MIB, 500 * MIB, DRIVER)


async def test_a_killed_process_gives_back_what_it_held(node: PreloadNode) -> None:
    async with node.run_back_end() as back_end, node.start_client() as program:
        await program.open(node.path)
        await program.ask(MessageKind.HELLO)
        await program.ask(MessageKind.HOLD, (0, 4301))
        assert read_used_mib(back_end) == 4301
        await program.kill()
        await wait_until_true(lambda: read_used_mib(back_end) == 0)


async def test_another_container_has_its_own_limit(node: PreloadNode) -> None:
    async with node.run_back_end() as back_end, node.start_client() as first, node.start_client(OTHER) as second:
        for program in (first, second):
            await program.open(node.path)
            await program.ask(MessageKind.HELLO)
            assert (await program.ask(MessageKind.HOLD, (0, 4301))).verdict is LibraryVerdict.YES
        assert read_used_mib(back_end, OTHER) == 4301


async def test_lowered_limit_refuses_and_raised_limit_allows_the_next_allocation(
    node: PreloadNode,
) -> None:
    async with node.run_back_end(), node.start_client() as program:
        await program.open(node.path)
        await program.ask(MessageKind.HELLO)
        await program.ask(MessageKind.HOLD, (0, 3000))
        node.names[APP] = ResolvedContainer("main", {"GPU-0": 2000})
        assert await program.ask(MessageKind.HOLD, (0, 3001)) == LibraryAnswer(
            LibraryVerdict.NO, 1, 1, 2000 * MIB, 3000 * MIB
        )
        await program.tell((0, 1000))
        assert await program.ask(MessageKind.LOOK, (0, 1000)) == LibraryAnswer(
            LibraryVerdict.YES, 1, 1, 2000 * MIB, 1000 * MIB
        )
        node.names[APP] = ResolvedContainer("main", {"GPU-0": 8000})
        assert (await program.ask(MessageKind.HOLD, (0, 8000))).verdict is LibraryVerdict.YES


async def test_memory_already_held_is_accepted_above_the_limit(node: PreloadNode) -> None:
    async with node.run_back_end(), node.start_client() as program:
        await program.open(node.path)
        assert (await program.ask(MessageKind.HELLO, (0, 5000))).verdict is LibraryVerdict.YES
        assert (await program.ask(MessageKind.HOLD, (0, 5001))).verdict is LibraryVerdict.NO
        assert (await program.ask(MessageKind.HOLD, (0, 4900))).verdict is LibraryVerdict.YES  # less is always allowed


MALFORMED = {
    "nothing": b"",
    "half a head": b"\1\0",
    "another version": QUESTION.pack(2, 1, 7, 0, 0),
    "an unknown kind": QUESTION.pack(1, 9, 7, 0, 0),
    "padding": QUESTION.pack(1, 1, 7, 0, 1),
    "more cards than there can be": QUESTION.pack(1, 1, 7, 33, 0) + bytes(33 * 16),
    "fewer bytes than cards": QUESTION.pack(1, 1, 7, 2, 0) + bytes(16),
    "a wish before its hello": write_question(build_question(MessageKind.HOLD, (0, 1), sequence=7)),
    "a long letter": bytes(100_000),
}


@pytest.mark.parametrize("packet", MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_packet_is_answered_and_the_connection_closed(node: PreloadNode, packet: bytes) -> None:
    async with node.run_back_end() as back_end:
        with PreloadClient(node.path) as client:
            client.send(packet)
            answer = await client.receive()
            assert answer is not None
            assert answer.verdict is LibraryVerdict.NOT_UNDERSTOOD
            assert answer.sequence == (7 if len(packet) >= QUESTION.size and packet[0] else 0)
            assert await client.receive() is None
        assert not back_end.count_processes()


async def test_a_process_whose_connection_was_closed_keeps_its_charge_until_it_ends(node: PreloadNode) -> None:
    """Otherwise a process could hold twice by sending garbage."""
    async with node.run_back_end() as back_end, node.start_client() as program:
        await program.open(node.path)
        await program.ask(MessageKind.HELLO)
        await program.ask(MessageKind.HOLD, (0, 4000))
        assert (await program.ask(MessageKind.HOLD, (0, 1), (1, 1))).verdict is LibraryVerdict.NOT_UNDERSTOOD
        await program.open(node.path)
        await wait_until_true(lambda: back_end._server is not None and bool(back_end._server.count_connections()))
        await program.close()  # and a connection without any message changes nothing
        await wait_until_true(lambda: not back_end._server or not back_end._server.count_connections())
        assert read_used_mib(back_end) == 4000
        await program.kill()
        await wait_until_true(lambda: read_used_mib(back_end) == 0)


async def test_a_process_that_connects_again_is_counted_once(node: PreloadNode) -> None:
    async with node.run_back_end() as back_end, node.start_client() as program:
        for _ in range(3):
            await program.open(node.path)
            await program.ask(MessageKind.HELLO, (0, 1000))
        assert read_used_mib(back_end) == 1000
        assert sum(back_end.count_processes().values()) == 1


async def test_process_outside_any_pod_or_in_an_unknown_pod_is_refused(node: PreloadNode) -> None:
    del node.names[OTHER]
    async with node.run_back_end(), node.start_client(None) as podless, node.start_client(OTHER) as stranger:
        for program in (podless, stranger):
            await program.open(node.path)
            assert (await program.ask(MessageKind.HELLO)).verdict is LibraryVerdict.NO
            assert (await program.ask(MessageKind.HOLD, (0, 1))).verdict is LibraryVerdict.NO


async def test_request_waits_for_the_container_name_without_delaying_others(node: PreloadNode) -> None:
    node.names[APP] = Unresolved.NAME_PENDING
    async with node.run_back_end(), node.start_client() as early, node.start_client(OTHER) as other:
        await early.open(node.path)
        waiting = asyncio.create_task(early.ask(MessageKind.HELLO, (0, 10)))
        await other.open(node.path)
        await other.ask(MessageKind.HELLO)
        assert (await other.ask(MessageKind.HOLD, (0, 10))).verdict is LibraryVerdict.YES
        assert not waiting.done()
        node.names[APP] = ResolvedContainer("main", {"GPU-0": 4301})
        assert (await waiting).verdict is LibraryVerdict.YES


async def test_a_container_without_a_name_is_refused_after_a_timeout(node: PreloadNode) -> None:
    node.names[APP] = Unresolved.NAME_PENDING
    node.pace = RateLimits(name_timeout_seconds=0.2)
    async with node.run_back_end(), node.start_client() as program:
        await program.open(node.path)
        assert (await program.ask(MessageKind.HELLO)).verdict is LibraryVerdict.NO
        node.names[APP] = ResolvedContainer("main", {"GPU-0": 4301})
        assert (await program.ask(MessageKind.HOLD, (0, 4301))).verdict is LibraryVerdict.YES


async def test_cards_are_identified_by_minor_number(node: PreloadNode) -> None:
    node.names[APP] = ResolvedContainer("main", {"GPU-0": 100, "GPU-1": 200})
    async with node.run_back_end() as back_end, node.start_client() as program:
        await program.open(node.path)
        assert (await program.ask(MessageKind.HELLO)).cards == 2
        assert (await program.ask(MessageKind.HOLD, (1, 200))).limit_bytes == 200 * MIB
        assert (await program.ask(MessageKind.HOLD, (ONLY_CARD, 1))).verdict is LibraryVerdict.NO_SUCH_CARD
        assert (await program.ask(MessageKind.HOLD, (7, 1))).verdict is LibraryVerdict.NO_SUCH_CARD
        assert read_used_mib(back_end, uuid="GPU-1") == 200


async def test_only_a_single_mig_instance_of_a_gpu_can_be_identified(node: PreloadNode) -> None:
    node.minors = {"MIG-a": 3, "MIG-b": 3}
    node.names[APP] = ResolvedContainer("main", {"MIG-a": 100, "MIG-b": 100})
    node.names[OTHER] = ResolvedContainer("main", {"MIG-b": 100})
    async with node.run_back_end(), node.start_client() as both, node.start_client(OTHER) as one:
        for program, verdict in ((both, LibraryVerdict.NO_SUCH_CARD), (one, LibraryVerdict.YES)):
            await program.open(node.path)
            await program.ask(MessageKind.HELLO)
            assert (await program.ask(MessageKind.HOLD, (3, 100))).verdict is verdict


async def test_a_process_that_asks_too_often_waits_without_delaying_others(node: PreloadNode) -> None:
    node.pace = RateLimits(messages_per_second=0.01, burst=20, connection_cost=1)
    async with node.run_back_end(), node.start_client(OTHER) as other:
        with PreloadClient(node.path) as greedy:
            for _ in range(20):  # 20 - 1 for the connection, and the one that overdraws
                await greedy.send_question(MessageKind.HELLO)
            for sequence in range(80):
                greedy.send(write_question(build_question(MessageKind.HELLO, sequence=sequence)))
            await other.open(node.path)
            for _ in range(10):
                assert (await other.ask(MessageKind.HELLO)).verdict is LibraryVerdict.YES
            with pytest.raises(BlockingIOError):
                greedy.socket.recv(4096)


async def test_a_pod_cannot_take_all_connections(node: PreloadNode) -> None:
    node.pace = RateLimits(max_processes=2)
    async with node.run_back_end() as back_end:
        programs = [await PreloadClientProcess.started() for _ in range(3)]
        try:
            for program in programs:
                await program.open(node.path)
            for program in programs[:2]:
                await program.ask(MessageKind.HELLO)
            with pytest.raises(AssertionError):  # disconnected
                await programs[2].ask(MessageKind.HELLO)
            assert back_end.count_processes() == {("uid-app", "main"): 2}
        finally:
            for program in programs:
                await program.kill()


async def test_usage_before_and_after_the_minor_is_known_counts_for_one_card(node: PreloadNode) -> None:
    """A process allocates before and after its library knows which card it is: both figures count."""
    async with node.run_back_end() as back_end, node.start_client() as program:
        await program.open(node.path)
        await program.ask(MessageKind.HELLO)
        assert (await program.ask(MessageKind.HOLD, (ONLY_CARD, 3000))).verdict is LibraryVerdict.YES
        assert (await program.ask(MessageKind.HOLD, (0, 1302))).verdict is LibraryVerdict.NO  # 4301 - 3000 = 1301
        assert (await program.ask(MessageKind.HOLD, (0, 1301))).used_bytes == 4301 * MIB
        await program.tell((ONLY_CARD, 0))
        assert (await program.ask(MessageKind.LOOK, (0, 1301))).used_bytes == 1301 * MIB
        assert (await program.ask(MessageKind.LOOK, (0, 1000))).used_bytes == 1000 * MIB, "what it says it has left"
        assert (await program.ask(MessageKind.LOOK, (0, 1301))).used_bytes == 1000 * MIB, "and looking takes nothing"
        assert (await program.ask(MessageKind.HELLO, (ONLY_CARD, 1), (0, 2))).used_bytes == 3 * MIB
        assert read_used_mib(back_end) == 3
