"""Containers that ask without end: work in one turn of the agent's loop stays small, and each other pod has its turn."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.preload_clients import PreloadClient, build_question
from tests.support.preload_node import APP, OTHER, PreloadNode, wait_until_true
from vrampack.agent.limits.cgroups import CgroupOwner
from vrampack.agent.limits.preload import peers
from vrampack.agent.limits.preload.backend import PreloadBackEnd
from vrampack.agent.limits.preload.fair_queue import FairQueue
from vrampack.agent.limits.preload.rate_limit import RateLimits
from vrampack.agent.limits.preload.server import MESSAGE_BATCH
from vrampack.agent.limits.preload.usage_ledger import ProcessKey
from vrampack.agent.limits.preload.wire import LibraryVerdict, MessageKind, write_question
from vrampack.agent.limits.workload import ResolvedContainer, Unresolved

CONTAINERS = [CgroupOwner(f"uid-{number}", "c" * 64) for number in range(40)]
PROCESSES = 6
"""Of each container."""
QUESTIONS = 10
"""That each process has sent before the first is read."""


class CountedNames(dict[CgroupOwner, ResolvedContainer | Unresolved]):
    """The containers of a node; counts how often the loop looks one up, which it does once for each question."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys([*CONTAINERS, APP, OTHER], ResolvedContainer("main", {"GPU-0": 4301})))
        self.total = self.most_in_a_turn = self._in_this_turn = 0

    def get(self, owner: CgroupOwner, default: Unresolved) -> ResolvedContainer | Unresolved:  # type: ignore[override] # as it is called
        self.total += 1
        self._in_this_turn += 1
        if self._in_this_turn == 1:
            asyncio.get_running_loop().call_soon(self._end_turn)
        return super().get(owner, default)

    def _end_turn(self) -> None:
        self.most_in_a_turn = max(self.most_in_a_turn, self._in_this_turn)
        self._in_this_turn = 0


@pytest.fixture
def names() -> CountedNames:
    return CountedNames()


@pytest.fixture
def node(tmp_path: Path, names: CountedNames) -> PreloadNode:
    return PreloadNode(tmp_path, names=names)


@pytest.fixture
def callers(monkeypatch: pytest.MonkeyPatch) -> deque[CgroupOwner]:
    """The containers of the next connections, each of a process of its own: a test does not start hundreds."""
    owners: deque[CgroupOwner] = deque()
    pids = iter(range(1 << 23, 1 << 24))  # numbers that no process has
    monkeypatch.setattr(
        peers, "identify_peer", lambda *_: peers.PeerProcess(ProcessKey(next(pids), 1), owners.popleft())
    )
    return owners


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def connect(node: PreloadNode, callers: deque[CgroupOwner], clients: ExitStack, owner: CgroupOwner) -> PreloadClient:
    callers.append(owner)
    return clients.enter_context(PreloadClient(node.path))


async def let_work(back_end: PreloadBackEnd) -> None:
    """Let the server's thread have as many turns as would answer everything here."""
    assert back_end._server is not None
    for _ in range(100):
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(0), back_end._server._loop))


async def test_forty_flooding_containers_leave_turns_small_and_each_pod_its_own(
    node: PreloadNode, names: CountedNames, callers: deque[CgroupOwner], clients: ExitStack
) -> None:
    """Before, one turn answered 8 messages of every connection."""
    async with node.run_back_end():
        flooding = [connect(node, callers, clients, owner) for owner in CONTAINERS for _ in range(PROCESSES)]
        honest = connect(node, callers, clients, APP)
        for client in (*flooding, honest):
            await client.send_question(MessageKind.HELLO)
        before = names.total
        for client in flooding:
            for _ in range(QUESTIONS):
                client.send_notice((0, 0))
        answer = await honest.send_question(MessageKind.HOLD, (0, 4301))
        assert answer.verdict is LibraryVerdict.YES
        # What was ready before it is found in one turn, and answered pod by pod: less than one message of each process.
        assert names.total - before < len(flooding)
        await wait_until_true(lambda: names.total - before == len(flooding) * QUESTIONS + 1)
        assert names.most_in_a_turn <= MESSAGE_BATCH


async def test_all_pods_together_are_held_to_the_rate_of_the_node(
    node: PreloadNode, names: CountedNames, callers: deque[CgroupOwner], clients: ExitStack
) -> None:
    node.pace = RateLimits(node_messages_per_second=0.01, node_burst=100, connection_cost=1)
    async with node.run_back_end() as back_end:
        connected = [connect(node, callers, clients, owner) for owner in CONTAINERS]
        await wait_until_true(lambda: not callers)
        await let_work(back_end)
        for client in connected:
            client.send(write_question(build_question(MessageKind.HELLO)))
            for _ in range(QUESTIONS):
                client.send_notice((0, 0))
        await wait_until_true(lambda: names.total >= 20)
        await let_work(back_end)
        # 100 - 40 for the connections, and the turn that overdraws; they have sent 440 messages
        assert names.total <= 60 + MESSAGE_BATCH


async def test_questions_that_wait_take_their_turns_like_others(
    node: PreloadNode,
    names: CountedNames,
    callers: deque[CgroupOwner],
    clients: ExitStack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each try costs as much as a question: 200 processes that wait for one name are no way around the rate."""
    monkeypatch.setattr("vrampack.agent.limits.preload.server.NAME_POLL_SECONDS", 0.0)
    node.pace = RateLimits(messages_per_second=0.01, burst=500, connection_cost=1)
    names[OTHER] = Unresolved.NAME_PENDING
    async with node.run_back_end():
        for _ in range(200):
            connect(node, callers, clients, OTHER).send(write_question(build_question(MessageKind.HELLO)))
        await wait_until_true(lambda: names.total >= 300)
        honest = connect(node, callers, clients, APP)
        for _ in range(50):
            assert (await honest.send_question(MessageKind.HELLO)).verdict is LibraryVerdict.YES
        assert names.total <= 500 + MESSAGE_BATCH + 50
        assert names.most_in_a_turn <= MESSAGE_BATCH


async def test_a_pod_finds_room_on_a_node_that_others_have_filled(
    node: PreloadNode, callers: deque[CgroupOwner], clients: ExitStack
) -> None:
    node.pace = RateLimits(node_max_processes=3, guaranteed_processes=1)
    async with node.run_back_end() as back_end:
        for owner in (OTHER, OTHER, OTHER, APP):
            connect(node, callers, clients, owner)
        for owner in (OTHER, APP):
            assert await connect(node, callers, clients, owner).receive() is None
        assert back_end._server is not None
        assert back_end._server.count_connections() == {OTHER: 3, APP: 1}


async def test_answers_that_are_not_read_do_not_fill_the_agent_s_memory(
    node: PreloadNode, names: CountedNames, callers: deque[CgroupOwner], clients: ExitStack
) -> None:
    """The kernel counts a sent packet as the sender's memory until it is read, here up to 208 KiB for each connection."""
    async with node.run_back_end():
        client = connect(node, callers, clients, APP)
        for _ in range(200):
            client.send(write_question(build_question(MessageKind.HELLO)))
        await wait_until_true(lambda: names.total == 200)
        client.send_notice((0, 0))
        await wait_until_true(lambda: names.total == 201)
        assert count_packets(client.socket) <= 16


def count_packets(connected: socket.socket) -> int:
    found = 0
    while True:
        try:
            connected.recv(4096)
        except BlockingIOError:
            return found
        found += 1


async def test_a_disconnected_process_still_takes_a_place_of_its_pod(node: PreloadNode) -> None:
    """Each needs a descriptor until it ends."""
    node.pace = RateLimits(max_processes=1)
    async with node.run_back_end(), node.start_client() as first, node.start_client() as second:
        await first.open(node.path)
        assert (await first.ask(MessageKind.HOLD, (0, 1))).verdict is LibraryVerdict.NOT_UNDERSTOOD
        await second.open(node.path)
        with pytest.raises(AssertionError):  # disconnected
            await second.ask(MessageKind.HELLO)
        await first.open(node.path)
        assert (await first.ask(MessageKind.HELLO)).verdict is LibraryVerdict.YES


async def test_an_ended_server_is_a_problem_of_the_node(node: PreloadNode) -> None:
    async with node.run_back_end() as back_end:
        assert await back_end.reconcile() == ""
        server = back_end._server
        assert server is not None
        assert server._thread is not None
        assert server._serving is not None
        server._loop.call_soon_threadsafe(server._serving.cancel)
        await asyncio.to_thread(server._thread.join)
        assert "the thread that answers the library has ended" in await back_end.reconcile()


async def test_an_internal_error_concerns_only_its_own_process(
    node: PreloadNode,
    names: CountedNames,
    callers: deque[CgroupOwner],
    clients: ExitStack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names[OTHER] = ResolvedContainer("main", {"GPU-0": None})  # type: ignore[dict-item] # a limit that is no number
    monkeypatch.setattr(peers, "is_ending", lambda _: 1 // 0)
    async with node.run_back_end() as back_end:
        honest, gone = (connect(node, callers, clients, APP) for _ in range(2))
        for client in (honest, gone):
            assert (await client.send_question(MessageKind.HELLO)).verdict is LibraryVerdict.YES
        undecidable = connect(node, callers, clients, OTHER)
        undecidable.send(write_question(build_question(MessageKind.HELLO)))
        assert await undecidable.receive() is None
        unidentifiable = clients.enter_context(PreloadClient(node.path))  # asking the fixture for its caller fails
        assert await unidentifiable.receive() is None
        gone.socket.close()
        await wait_until_true(lambda: back_end.process_count == 1)
        assert (await honest.send_question(MessageKind.HELLO)).verdict is LibraryVerdict.YES
        assert await back_end.reconcile() == ""


def drain(queue: FairQueue[int]) -> list[tuple[str, int]]:
    return list(iter(queue.pop, None))


def test_pods_take_turns_whatever_each_has() -> None:
    queue = FairQueue[int]()
    for item in range(3):
        queue.push("a", item)
    queue.push("b", 7)
    queue.push("c", 8)
    assert drain(queue) == [("a", 0), ("b", 7), ("c", 8), ("a", 1), ("a", 2)]
    assert queue.is_empty


def test_a_paused_pod_keeps_its_items_until_it_is_resumed() -> None:
    queue = FairQueue[int]()
    queue.push("a", 1)
    queue.pause("a")
    queue.push("a", 2)
    queue.push("b", 3)
    assert drain(queue) == [("b", 3)]
    queue.resume("a")
    assert drain(queue) == [("a", 1), ("a", 2)]
    queue.pause("a")
    queue.resume("a")
    queue.push("a", 4)
    assert drain(queue) == [("a", 4)]
