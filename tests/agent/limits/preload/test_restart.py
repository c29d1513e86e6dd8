"""Agents that die, are replaced, or are away for a while: holdings are known afterwards, and no limit was exceeded."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from random import Random

import pytest

from tests.support.preload_clients import PreloadClientProcess
from tests.support.preload_node import APP, MIB, PreloadNode, read_used_mib, wait_until_true
from vrampack.agent.limits.preload import peers
from vrampack.agent.limits.preload.journal import Journal
from vrampack.agent.limits.preload.usage_ledger import ProcessKey
from vrampack.agent.limits.preload.wire import LibraryVerdict, MessageKind

ROOT = Path(__file__).parents[4]


@pytest.fixture
def node(tmp_path: Path) -> PreloadNode:
    return PreloadNode(tmp_path)


async def test_next_agent_counts_a_silent_process_until_it_ends(node: PreloadNode) -> None:
    async with node.start_client() as program:
        async with node.run_back_end():
            await program.open(node.path)
            await program.ask(MessageKind.HELLO)
            await program.ask(MessageKind.HOLD, (0, 3000))
        async with node.run_back_end() as back_end:
            assert read_used_mib(back_end) == 3000
            await program.kill()
            await wait_until_true(lambda: read_used_mib(back_end) == 0)


async def test_process_that_ended_while_no_agent_ran_holds_nothing(node: PreloadNode) -> None:
    async with node.start_client() as program:
        async with node.run_back_end():
            await program.open(node.path)
            await program.ask(MessageKind.HELLO, (0, 3000))
        await program.kill()
        async with node.run_back_end() as back_end:
            assert read_used_mib(back_end) == 0


async def test_a_process_that_reuses_a_pid_is_not_taken_for_the_earlier_one(node: PreloadNode) -> None:
    async with node.run_back_end():
        pass
    started_ticks = peers.read_start_ticks(os.getpid())
    assert started_ticks is not None
    books = Journal(node.books, boot_id=peers.read_boot_id())
    books.write_holding(ProcessKey(os.getpid(), started_ticks - 1), APP, "GPU-0", 3000 * MIB)
    books.close()
    async with node.run_back_end() as back_end:
        assert read_used_mib(back_end) == 0


async def test_memory_freed_while_the_agent_was_away_is_reported_by_the_next_hello(node: PreloadNode) -> None:
    async with node.start_client() as program:
        async with node.run_back_end():
            await program.open(node.path)
            await program.ask(MessageKind.HELLO, (0, 3000))
        async with node.run_back_end() as back_end:
            await program.open(node.path)
            assert (await program.ask(MessageKind.HELLO, (0, 1000))).used_bytes == 1000 * MIB
            assert read_used_mib(back_end) == 1000


async def test_a_new_agent_waits_for_the_journal_and_then_takes_over(node: PreloadNode) -> None:
    """Two at once, as may briefly happen in an upgrade: the old one answers until it ends."""
    async with node.start_client() as program:
        old, new = node.back_end(), node.back_end()
        await old.start()
        starting = asyncio.create_task(new.start())
        try:
            await program.open(node.path)
            assert (await program.ask(MessageKind.HELLO, (0, 500))).verdict is LibraryVerdict.YES
            assert not starting.done()
            old.stop()
            async with asyncio.timeout(5):
                await starting
            assert read_used_mib(new) == 500
            await program.open(node.path)
            assert (await program.ask(MessageKind.HELLO, (0, 501))).used_bytes == 501 * MIB
        finally:
            new.stop()


async def test_an_agent_that_stops_late_does_not_take_the_socket_of_the_next_one(node: PreloadNode) -> None:
    async with node.run_back_end() as old:
        server = old._server
        assert server is not None
        old._server = None
        assert old._journal is not None
        old._journal.close()
        old._journal = None
        async with node.run_back_end():
            server.stop()
            async with node.start_client() as program:
                await program.open(node.path)
                assert (await program.ask(MessageKind.HELLO)).verdict is LibraryVerdict.YES
    assert not node.path.exists()


AGENT = """
import asyncio, sys
from pathlib import Path
from tests.support.preload_node import PreloadNode

async def main():
    back_end = PreloadNode(Path(sys.argv[1])).back_end()
    await back_end.start()
    print("begun", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def an_agent_of_its_own(node: PreloadNode) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", AGENT, str(node.folder)), stdout=PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"begun\n"
    return process


async def test_repeatedly_killed_agents_lose_no_holdings(node: PreloadNode) -> None:
    """Processes hold, free, and reconnect only at random; after every kill the journal has what they hold."""
    random = Random(3)
    programs = [await PreloadClientProcess.started() for _ in range(3)]
    held = dict.fromkeys(programs, 0)
    try:
        for _ in range(4):
            agent = await an_agent_of_its_own(node)
            for program in programs:
                if random.random() < 0.7 or not held[program]:
                    await program.open(node.path)
                    await program.ask(MessageKind.HELLO, (0, held[program]))
                    for _ in range(random.randint(1, 10)):
                        wanted = random.randint(0, 4301)
                        if (await program.ask(MessageKind.HOLD, (0, wanted))).verdict is LibraryVerdict.YES:
                            held[program] = wanted
                        assert sum(held.values()) <= 4301
            agent.kill()
            await agent.communicate()
            async with node.run_back_end() as back_end:
                assert {each.pid: each.held_bytes // MIB for each in back_end.list_processes()} == {
                    program.pid: mib for program, mib in held.items() if mib
                }
    finally:
        for program in programs:
            await program.kill()
    async with node.run_back_end() as back_end:
        assert read_used_mib(back_end) == 0


async def test_peer_process_is_found_by_pid_on_a_kernel_without_peer_pidfd(
    node: PreloadNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "SO_PEERPIDFD", 9999)
    async with node.run_back_end() as back_end, node.start_client() as program:
        await program.open(node.path)
        await program.ask(MessageKind.HELLO, (0, 100))
        assert [each.pid for each in back_end.list_processes()] == [program.pid]
        await program.kill()
        await wait_until_true(lambda: read_used_mib(back_end) == 0)


async def test_an_installed_library_is_replaced_and_never_written_into(node: PreloadNode) -> None:
    async with node.run_back_end():
        library = node.folder / "preload" / "libvrampack.so"
        first = library.stat().st_ino
    async with node.run_back_end():
        assert library.stat().st_ino == first
    with library.open("rb") as mapped:
        back_end = node.back_end()
        (node.folder / "libvrampack.so").write_bytes(b"a newer library")
        await back_end.start()
        back_end.stop()
        assert mapped.read() == b"a library"
    assert library.read_bytes() == b"a newer library"
    assert library.stat().st_mode & 0o777 == 0o755
