"""A process that is ending still has its memory: the driver takes it back after the connection is closed, not before."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.agent.limits.preload.clients import Program
from tests.agent.limits.preload.nodes import Node, until, used_mib
from vrampack.agent.limits.preload import peers
from vrampack.agent.limits.preload.backend import Preload
from vrampack.agent.limits.preload.ledger import Process
from vrampack.agent.limits.preload.server import Pace
from vrampack.agent.limits.preload.wire import Kind, Verdict


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Pids of processes that count as ending: no test can hold one between its first close and its last."""
    pids: set[int] = set()
    real = peers.is_ending
    monkeypatch.setattr(peers, "is_ending", lambda process: process.pid in pids or real(process))
    return pids


async def holds(program: Program, node: Node, mib: int) -> None:
    await program.open(node.path)
    await program.ask(Kind.HELLO)
    assert (await program.ask(Kind.HOLD, (0, mib))).verdict is Verdict.YES


async def hang_up(program: Program, ending: set[int], back_end: Preload) -> None:
    """And the agent has seen it."""
    ending.add(program.pid)
    before = back_end.connections
    await program.close()
    await until(lambda: back_end.connections < before)


async def test_what_it_holds_is_given_to_nobody_until_it_has_ended(node: Node, ending: set[int]) -> None:
    async with node.running() as back_end, node.program() as first, node.program() as second:
        await holds(first, node, 4000)
        await holds(second, node, 1)
        await hang_up(first, ending, back_end)
        assert used_mib(back_end) == 4001
        waiting = asyncio.create_task(second.ask(Kind.HOLD, (0, 4000)))
        assert (await asyncio.wait([waiting], timeout=0.2))[1] == {waiting}, "it waits"
        await first.kill()
        assert (await waiting).verdict is Verdict.YES
        assert used_mib(back_end) == 4000
        assert [tally.refused for tally in back_end.tallies().values()] == [0], "nobody was refused"


async def test_what_fits_beside_it_waits_for_nobody(node: Node, ending: set[int]) -> None:
    async with node.running() as back_end, node.program() as first, node.program() as second:
        await holds(first, node, 4000)
        await holds(second, node, 1)
        await hang_up(first, ending, back_end)
        assert (await second.ask(Kind.HOLD, (0, 301))).verdict is Verdict.YES  # 4301 - 4000 = 301
        assert (await second.ask(Kind.LOOK, (0, 301))).used_bytes >> 20 == 4301


async def test_one_that_does_not_end_is_not_waited_for_for_ever(node: Node, ending: set[int]) -> None:
    node.pace = Pace(name_seconds=0.2)
    async with node.running() as back_end, node.program() as first, node.program() as second:
        await holds(first, node, 4000)
        await holds(second, node, 1)
        await hang_up(first, ending, back_end)
        answer = await second.ask(Kind.HOLD, (0, 4000))
        assert (answer.verdict, answer.limit_bytes >> 20, answer.used_bytes >> 20) == (Verdict.NO, 4301, 4001)


async def test_one_that_lives_on_and_closes_gives_back_at_once(node: Node) -> None:
    """As a program that becomes another one by exec: its files went with the connection."""
    async with node.running() as back_end, node.program() as program:
        await holds(program, node, 4000)
        await program.close()
        await until(lambda: used_mib(back_end) == 0)


def test_who_runs_is_not_ending_and_who_has_ended_is() -> None:
    started = peers.started(os.getpid())
    assert started is not None
    assert not peers.is_ending(Process(os.getpid(), started))
    assert peers.is_ending(Process(os.getpid(), started + 1)), "its number is another's by now"
    assert peers.is_ending(Process(4_194_305, 1)), "a number that no process has"


def test_a_zombie_is_ending() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    started = peers.started(pid)
    assert started is not None
    assert peers.is_ending(Process(pid, started))
    os.waitpid(pid, 0)
