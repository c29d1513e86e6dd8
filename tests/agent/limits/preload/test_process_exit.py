"""A process that is ending still has its memory: the driver takes it back after the connection is closed, not before."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.support.preload_clients import PreloadClientProcess
from tests.support.preload_node import PreloadNode, read_used_mib, wait_until_true
from vrampack.agent.limits.preload import peers
from vrampack.agent.limits.preload.backend import PreloadBackEnd
from vrampack.agent.limits.preload.rate_limit import RateLimits
from vrampack.agent.limits.preload.usage_ledger import ProcessKey
from vrampack.agent.limits.preload.wire import LibraryVerdict, MessageKind


@pytest.fixture
def node(tmp_path: Path) -> PreloadNode:
    return PreloadNode(tmp_path)


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Pids of processes that count as ending: no test can hold one between its first close and its last."""
    pids: set[int] = set()
    real = peers.is_ending
    monkeypatch.setattr(peers, "is_ending", lambda process: process.pid in pids or real(process))
    return pids


async def holds(program: PreloadClientProcess, node: PreloadNode, mib: int) -> None:
    await program.open(node.path)
    await program.ask(MessageKind.HELLO)
    assert (await program.ask(MessageKind.HOLD, (0, mib))).verdict is LibraryVerdict.YES


async def hang_up(program: PreloadClientProcess, ending: set[int], back_end: PreloadBackEnd) -> None:
    """Disconnect, and wait until the agent has seen it."""
    ending.add(program.pid)
    before = back_end.process_count
    await program.close()
    await wait_until_true(lambda: back_end.process_count < before)


async def test_memory_of_an_exiting_process_is_granted_only_after_its_exit(node: PreloadNode, ending: set[int]) -> None:
    async with node.run_back_end() as back_end, node.start_client() as first, node.start_client() as second:
        await holds(first, node, 4000)
        await holds(second, node, 1)
        await hang_up(first, ending, back_end)
        assert read_used_mib(back_end) == 4001
        waiting = asyncio.create_task(second.ask(MessageKind.HOLD, (0, 4000)))
        assert (await asyncio.wait([waiting], timeout=0.2))[1] == {waiting}, "it waits"
        await first.kill()
        assert (await waiting).verdict is LibraryVerdict.YES
        assert read_used_mib(back_end) == 4000
        assert [tally.refused for tally in back_end.list_usage_totals().values()] == [0], "no process was refused"


async def test_a_request_that_fits_beside_an_exiting_process_does_not_wait(node: PreloadNode, ending: set[int]) -> None:
    async with node.run_back_end() as back_end, node.start_client() as first, node.start_client() as second:
        await holds(first, node, 4000)
        await holds(second, node, 1)
        await hang_up(first, ending, back_end)
        assert (await second.ask(MessageKind.HOLD, (0, 301))).verdict is LibraryVerdict.YES  # 4301 - 4000 = 301
        assert (await second.ask(MessageKind.LOOK, (0, 301))).used_bytes >> 20 == 4301


async def test_waiting_for_an_exiting_process_has_a_timeout(node: PreloadNode, ending: set[int]) -> None:
    node.pace = RateLimits(name_timeout_seconds=0.2)
    async with node.run_back_end() as back_end, node.start_client() as first, node.start_client() as second:
        await holds(first, node, 4000)
        await holds(second, node, 1)
        await hang_up(first, ending, back_end)
        answer = await second.ask(MessageKind.HOLD, (0, 4000))
        assert (answer.verdict, answer.limit_bytes >> 20, answer.used_bytes >> 20) == (LibraryVerdict.NO, 4301, 4001)


async def test_a_running_process_that_disconnects_frees_its_memory_at_once(node: PreloadNode) -> None:
    """Like a program that calls exec: its files were closed with the connection."""
    async with node.run_back_end() as back_end, node.start_client() as program:
        await holds(program, node, 4000)
        await program.close()
        await wait_until_true(lambda: read_used_mib(back_end) == 0)


def test_is_ending_tells_running_processes_from_ended_ones() -> None:
    started = peers.read_start_ticks(os.getpid())
    assert started is not None
    assert not peers.is_ending(ProcessKey(os.getpid(), started))
    assert peers.is_ending(ProcessKey(os.getpid(), started + 1)), "its number is another's by now"
    assert peers.is_ending(ProcessKey(4_194_305, 1)), "a number that no process has"


def test_a_zombie_is_ending() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    started = peers.read_start_ticks(pid)
    assert started is not None
    assert peers.is_ending(ProcessKey(pid, started))
    os.waitpid(pid, 0)
