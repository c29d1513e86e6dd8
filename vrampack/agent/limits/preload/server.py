"""The socket that the library asks, one connection for each process; when the connection ends, the process's memory is uncharged.

    connect --(who? pid, cgroup)--> HELLO --> HOLD, GIVE, LOOK ... --> end of connection: what it held is uncharged
                                      |  the agent dies, or hangs up on what it does not understand
                                      v
                          known and not connected: the process is watched until it ends, or says HELLO again

Programs in pods decide how much there is to do here, so a thread of its own does it, in turns of a bounded size for all
connections together, in which the pods are served in rotation, one message at a time:

    thread    up to 4 new connections, up to 32 messages -->|                                |--> answers, next turn
    agent's loop, beside starts and all else                |--> ledger decides the messages |

The agent's loop alone reads and writes ledger, journal and records. A container that asks too fast is read later, never
refused for it. A question that cannot be answered yet delays only its own connection.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from vrampack.agent.limits.cgroups import CgroupOwner, FindOwner
from vrampack.agent.limits.preload import peers
from vrampack.agent.limits.preload.decisions import AllocationDecisions
from vrampack.agent.limits.preload.errors import LibraryProtocolError
from vrampack.agent.limits.preload.fair_queue import FairQueue
from vrampack.agent.limits.preload.rate_limit import RateLimiter
from vrampack.agent.limits.preload.usage_ledger import ProcessKey, UsageLedger
from vrampack.agent.limits.preload.wire import (
    MAX_QUESTION_BYTES,
    LibraryAnswer,
    LibraryQuestion,
    LibraryVerdict,
    MessageKind,
    read_question,
    write_answer,
)
from vrampack.agent.limits.unix_listener import UnixListener
from vrampack.agent.limits.workload import Unresolved

log = logging.getLogger(__name__)

NODE = ""
"""Instead of a pod: the node as a whole, and processes in no pod."""
MESSAGE_BATCH = 32
"""Messages of all connections together in one turn: some 0.6 ms, of which the agent's loop spends 0.3 ms on the decisions."""
CONNECTION_BATCH = 4
"""New connections in one turn: some 0.6 ms."""
EVENT_BATCH = 256
"""How many connections are found ready in one turn; further ones wait in the kernel, in the order in which they became ready."""
EXIT_POLL_SECONDS = 0.005
"""How often to check whether a process has ended: most take less than a millisecond, one with much card memory longer."""
NAME_POLL_SECONDS = 0.1
"""How often to check for a container's name, which kubelet reports."""
ACCEPT_PAUSE_SECONDS = 1.0
"""How long new connections wait when no descriptor is left."""
ERROR_COST = 100
"""In messages: an internal error that repeats does not keep the thread busy."""
ANSWER_BUFFER_BYTES = 1
"""The kernel makes it its least, room for a few answers, and a process waits for each. A process that does not read its
answers fills the buffer, and that memory counts as the agent's: the usual size is 208 KiB for each connection."""
READABLE = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT
"""Reported once, until it is asked for again: what waits for its turn costs nothing meanwhile."""


@dataclass(frozen=True, slots=True)
class RateLimits:
    """What one pod may do, and all together. Measured: a message costs the agent about 20 us, a connection about 150."""

    messages_per_second: float = 5000
    burst: float = 5000
    node_messages_per_second: float = 10_000
    """All pods together: a fifth of a core."""
    node_burst: float = 10_000
    connection_cost: float = 5
    """In messages."""
    max_processes: int = 1024
    """The most processes of one pod that are connected, or watched until they end."""
    node_max_processes: int = 8192
    """All pods together. Each takes a descriptor and some 3 KiB of the agent's memory."""
    guaranteed_processes: int = 64
    """What a pod may have although the others have used up the node's number."""
    name_timeout_seconds: float = 15.0
    """How long a question waits for the pod's status, in which kubelet reports a container within a few seconds, or for the
    memory of a process of its container that is ending."""


class LibraryConnection:
    """The connection of one process."""

    __slots__ = ("deadline", "has_greeted", "open", "owner", "process", "question", "retry", "socket")

    def __init__(self, connected: socket.socket, peer: peers.PeerProcess) -> None:
        self.socket = connected
        self.process = peer.process
        self.owner = peer.owner
        self.has_greeted = False
        self.open = True
        self.question: LibraryQuestion | None = None
        """Set while it waits until it can be answered; nothing more is read meanwhile."""
        self.retry: asyncio.TimerHandle | None = None
        self.deadline: float | None = None
        """Until when its questions may wait for a name; None while none waits."""


@dataclass(frozen=True, slots=True)
class WatchedProcess:
    """A known process without a connection, with the pidfd that reports its end."""

    pidfd: int
    owner: CgroupOwner | None
    is_exiting: bool


@dataclass(frozen=True, slots=True)
class PendingDecision:
    """A question for the agent's loop."""

    connection: LibraryConnection
    question: LibraryQuestion
    is_memory_returning: bool


QueueItem: TypeAlias = LibraryConnection | ProcessKey
"""A connection to be read, or a process that has ended."""
LedgerStep: TypeAlias = PendingDecision | ProcessKey
"""A question to be decided, or a process that no longer holds anything."""


class PreloadServer:
    """Serves one ledger. `start`, `stop` and the figures are for the agent's loop; everything else runs in the thread."""

    def __init__(
        self,
        path: Path,
        ledger: UsageLedger,
        decisions: AllocationDecisions,
        *,
        find_owner: FindOwner,
        rate_limits: RateLimits | None = None,
    ) -> None:
        """`find_owner` is called by the thread, everything else that is passed in by the loop that runs now."""
        self._listener = UnixListener(path)
        self._ledger = ledger
        self._decisions = decisions
        self._find_owner = find_owner
        self._rate_limits = limits = rate_limits or RateLimits()
        self._agent_loop = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._serving: asyncio.Task[None] | None = None
        self._pod_rates = RateLimiter(
            per_second=limits.messages_per_second, capacity=limits.burst, clock=time.monotonic
        )
        self._node_rate = RateLimiter(
            per_second=limits.node_messages_per_second, capacity=limits.node_burst, clock=time.monotonic
        )
        self._epoll = select.epoll()
        self._woken = asyncio.Event()
        self._listening: socket.socket | None = None
        self._queue: FairQueue[QueueItem] = FairQueue()
        self._ready_items: dict[int, tuple[str, QueueItem]] = {}
        """Pod and item by descriptor: what the kernel may report as ready."""
        self._connections: dict[ProcessKey, LibraryConnection] = {}
        self._connection_counts: Counter[CgroupOwner | None] = Counter()
        """Replaced at each change, never changed: the agent's loop reads it."""
        self._watched: dict[ProcessKey, WatchedProcess] = {}
        self._process_counts: Counter[str] = Counter()
        """Connected and watched processes by pod."""
        self._exiting_counts: Counter[CgroupOwner | None] = Counter()
        """Watched processes that have begun to end, by container."""

    @property
    def problem(self) -> str:
        """Why it answers no process any more; empty while it does."""
        is_alive = self._thread is not None and self._thread.is_alive()
        return "" if is_alive else "the thread that answers the library has ended; see the agent's log, and restart it"

    def count_connections(self) -> Counter[CgroupOwner | None]:
        """The number of connected processes by container."""
        return self._connection_counts

    def start(self, known_processes: Mapping[ProcessKey, CgroupOwner] | None = None) -> None:
        """Watch the processes known from before, listen, then take over the socket's name. Raises `OSError`."""
        for process, owner in (known_processes or {}).items():
            if self._watch_exit(process, owner) is not None:
                self._ledger.remove_process(process)
        self._listening = self._listener.bind_socket(socket.SOCK_SEQPACKET, mode=0o666)
        self._listening.listen(socket.SOMAXCONN)
        self._listener.publish_socket()
        self._epoll.register(self._listening, select.EPOLLIN)
        self._serving = self._loop.create_task(self._serve())
        self._thread = threading.Thread(target=self._run, name="preload-server", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop without uncharging anything: processes keep what they hold, and tell the next agent about it."""
        if self._thread is not None and self._serving is not None:
            self._loop.call_soon_threadsafe(self._serving.cancel)
            self._thread.join()
        self._loop.close()
        if self._listening is not None:
            self._listening.close()
            self._listener.remove_socket()
        for connection in list(self._connections.values()):
            self._close_connection(connection)
        for process in list(self._watched):
            self._unwatch_exit(process)
        self._epoll.close()

    def _run(self) -> None:
        """The thread."""
        if self._serving is None:
            return
        try:
            self._loop.run_until_complete(self._serving)
        except asyncio.CancelledError:
            log.debug("preload server stopped")
        except Exception:
            log.exception("preload server failed")

    async def _serve(self) -> None:
        """Turn by turn, until cancelled. After an internal error the processes of its turn have to connect again."""
        while True:
            await asyncio.sleep(self._node_rate.take_tokens(NODE, 0))
            await self._wait_for_work()
            turn: list[QueueItem] = []
            try:
                self._collect_ready()
                self._fill_turn(turn)
                await self._serve_turn(turn)
            except Exception:
                log.exception("connections closed connections=%s", len(turn))
                self._node_rate.take_tokens(NODE, ERROR_COST)
                for item in turn:
                    ended = item if isinstance(item, ProcessKey) else self._disconnect(item)
                    if ended is not None:
                        self._queue.push(NODE, ended)

    async def _wait_for_work(self) -> None:
        if not self._queue.is_empty:
            return
        self._woken.clear()
        self._loop.add_reader(self._epoll, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            self._loop.remove_reader(self._epoll)

    def _collect_ready(self) -> None:
        ready = [descriptor for descriptor, _ in self._epoll.poll(0, EVENT_BATCH)]
        items = [self._ready_items[descriptor] for descriptor in ready if descriptor in self._ready_items]
        for pod, item in items:
            self._queue.push(pod, item)
        if len(items) < len(ready):  # last: a new connection may get the number of one that it closes
            self._accept_connections()

    def _fill_turn(self, turn: list[QueueItem]) -> None:
        while len(turn) < MESSAGE_BATCH and (found := self._queue.pop()) is not None:
            pod, item = found
            turn.append(item)
            self._take_tokens(pod, 1)

    async def _serve_turn(self, turn: Iterable[QueueItem]) -> None:
        """Read, let the agent's loop decide in one turn of its own, and answer."""
        steps = [step for item in turn if (step := self._read_item(item)) is not None]
        if not steps:
            return
        deciding = asyncio.run_coroutine_threadsafe(self._decide(steps), self._agent_loop)
        answers = await asyncio.wrap_future(deciding)
        for step, answer in zip(steps, answers, strict=True):
            if isinstance(step, ProcessKey):
                continue
            if answer is not None:
                self._answer_or_wait(step.connection, step.question, answer)
            elif (ended := self._disconnect(step.connection)) is not None:
                self._queue.push(NODE, ended)

    async def _decide(self, steps: Sequence[LedgerStep]) -> list[LibraryAnswer | Unresolved | None]:
        """In the agent's loop, which alone reads and writes ledger and records."""
        return [self._decide_step(step) for step in steps]

    def _decide_step(self, step: LedgerStep) -> LibraryAnswer | Unresolved | None:
        """None for a process that has ended, and after an internal error, which delays nobody else."""
        try:
            if isinstance(step, ProcessKey):
                self._ledger.remove_process(step)
                return None
            process, owner = step.connection.process, step.connection.owner
            return self._decisions.decide(process, owner, step.question, is_memory_returning=step.is_memory_returning)
        except Exception:
            log.exception("question not decided")
            return None

    def _accept_connections(self) -> None:
        if self._listening is None:
            return
        for _ in range(CONNECTION_BATCH):
            try:
                connected, _ = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                    raise
                log.error("connections paused error=%s", error)  # noqa: TRY400 - said, not traced
                self._epoll.unregister(self._listening)
                self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._resume_accepting)
                return
            connected.settimeout(0)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ANSWER_BUFFER_BYTES)
            self._admit_connection(connected)

    def _resume_accepting(self) -> None:
        if self._listening is not None:
            self._epoll.register(self._listening, select.EPOLLIN)
            self._woken.set()

    def _admit_connection(self, connected: socket.socket) -> None:
        try:
            peer = peers.identify_peer(connected, self._find_owner)
        except Exception:
            log.exception("connection refused")
            peer = None
        pod = _get_pod(None if peer is None else peer.owner)
        self._take_tokens(pod, self._rate_limits.connection_cost)
        if peer is None or self._is_full_for(peer.process, pod):
            log.debug("connection refused peer=%s", peer)
            connected.close()
            return
        connection = LibraryConnection(connected, peer)
        former = self._connections.get(peer.process)
        if former is not None:  # the process reconnects: its next HELLO says what it holds
            self._close_connection(former)
        self._unwatch_exit(peer.process)
        self._connections[peer.process] = connection
        self._count_connection(peer.owner, 1)
        self._process_counts[pod] += 1
        self._ready_items[connected.fileno()] = pod, connection
        self._epoll.register(connected, READABLE)

    def _is_full_for(self, process: ProcessKey, pod: str) -> bool:
        """Whether this process would be one too many. One that is known already takes its own place."""
        limits, count = self._rate_limits, self._process_counts[pod]
        if process in self._connections or process in self._watched:
            return False
        is_node_full = len(self._connections) + len(self._watched) >= limits.node_max_processes
        return count >= limits.max_processes or (is_node_full and count >= limits.guaranteed_processes)

    def _read_item(self, item: QueueItem) -> LedgerStep | None:
        """What the ledger has to do with it; None for nothing."""
        if isinstance(item, ProcessKey):
            self._unwatch_exit(item)
            return item
        if not item.open:
            return None
        return self._pend(item, item.question) if item.question is not None else self._read_packet(item)

    def _read_packet(self, connection: LibraryConnection) -> LedgerStep | None:
        try:
            packet = connection.socket.recv(MAX_QUESTION_BYTES + 1)
        except BlockingIOError:
            self._read_on(connection)
            return None
        except OSError:
            return self._on_disconnect(connection)
        if not packet and peers.is_hung_up(connection.socket):
            return self._on_disconnect(connection)
        try:
            return self._pend(connection, _check_order(read_question(packet), connection))
        except LibraryProtocolError as error:
            log.warning("process disconnected pid=%s reason=%s", connection.process.pid, error)
            self._send_answer(connection, LibraryAnswer(LibraryVerdict.NOT_UNDERSTOOD, error.sequence))
            return self._disconnect(connection)

    def _pend(self, connection: LibraryConnection, question: LibraryQuestion) -> PendingDecision:
        is_hopeful = self._exiting_counts[connection.owner] > 0 and not self._was_past_deadline(connection)
        return PendingDecision(connection, question, is_hopeful)

    def _read_on(self, connection: LibraryConnection) -> None:
        """Read its next message when there is one."""
        self._epoll.modify(connection.socket, READABLE)

    def _answer_or_wait(
        self, connection: LibraryConnection, question: LibraryQuestion, answer: LibraryAnswer | Unresolved
    ) -> None:
        """Answer the question, or let its connection wait until it can be answered."""
        if not isinstance(answer, Unresolved):
            connection.deadline = None
        elif self._is_past_deadline(connection) and answer is not Unresolved.MEMORY_RETURNING:
            log.warning(
                "allocation refused pid=%s owner=%s reason=%s", connection.process.pid, connection.owner, answer.value
            )
            answer = LibraryAnswer(LibraryVerdict.NO, question.sequence)
        else:
            # Past the deadline it is decided once more, as if no memory were coming back: that answer has the numbers.
            seconds = EXIT_POLL_SECONDS if answer is Unresolved.MEMORY_RETURNING else NAME_POLL_SECONDS
            connection.question = question
            connection.retry = self._loop.call_later(seconds, self._retry_question, connection)
            return
        connection.question = None
        self._send_decision(connection, question, answer)
        self._read_on(connection)

    def _retry_question(self, connection: LibraryConnection) -> None:
        self._queue.push(_get_pod(connection.owner), connection)
        self._woken.set()

    def _is_past_deadline(self, connection: LibraryConnection) -> bool:
        """Whether its questions, this one included, have waited long enough."""
        if connection.deadline is None:
            connection.deadline = self._loop.time() + self._rate_limits.name_timeout_seconds
        return self._was_past_deadline(connection)

    def _was_past_deadline(self, connection: LibraryConnection) -> bool:
        return connection.deadline is not None and self._loop.time() >= connection.deadline

    def _send_decision(self, connection: LibraryConnection, question: LibraryQuestion, answer: LibraryAnswer) -> None:
        connection.has_greeted = True
        if question.kind is not MessageKind.GIVE:
            self._send_answer(connection, answer)

    def _send_answer(self, connection: LibraryConnection, answer: LibraryAnswer) -> None:
        try:
            connection.socket.send(write_answer(answer))
        except OSError as error:  # it is gone, as its next read will show; or it does not read
            log.debug("answer not sent pid=%s error=%s", connection.process.pid, error)

    def _take_tokens(self, pod: str, cost: float) -> None:
        """Charge the pod and the node; a pod that has asked too much is served later."""
        self._node_rate.take_tokens(NODE, cost)
        seconds = self._pod_rates.take_tokens(pod, cost)
        if seconds and not self._queue.is_paused(pod):
            self._queue.pause(pod)
            self._loop.call_later(seconds, self._resume_pod, pod)

    def _resume_pod(self, pod: str) -> None:
        self._queue.resume(pod)
        self._woken.set()

    def _on_disconnect(self, connection: LibraryConnection) -> ProcessKey | None:
        """The process closed its connection, mostly by ending: uncharge what it held, if it said HELLO on this connection.

        A dying process may lose this connection before the driver's files. Until it has ended, what it holds must not be
        given to another.
        """
        self._close_connection(connection)
        if not connection.has_greeted:
            return self._watch_exit(connection.process, connection.owner)
        if peers.is_ending(connection.process):
            return self._watch_exit(connection.process, connection.owner, is_exiting=True)
        return connection.process

    def _disconnect(self, connection: LibraryConnection) -> ProcessKey | None:
        """Close the connection ourselves: the process lives on, and keeps what it holds."""
        if not connection.open:
            return None
        self._close_connection(connection)
        return self._watch_exit(connection.process, connection.owner)

    def _close_connection(self, connection: LibraryConnection) -> None:
        if connection.retry is not None:
            connection.retry.cancel()
        connection.open = False
        del self._ready_items[connection.socket.fileno()]
        self._epoll.unregister(connection.socket)
        connection.socket.close()
        if self._connections.get(connection.process) is connection:
            del self._connections[connection.process]
        self._count_connection(connection.owner, -1)
        self._uncount_process(_get_pod(connection.owner))

    def _watch_exit(
        self, process: ProcessKey, owner: CgroupOwner | None, *, is_exiting: bool = False
    ) -> ProcessKey | None:
        """Have the ledger uncharge what it holds when it ends. Returns it if it has ended already."""
        pidfd = peers.open_pidfd(process)
        if pidfd is None:
            return process
        self._watched[process] = WatchedProcess(pidfd, owner, is_exiting)
        self._process_counts[_get_pod(owner)] += 1
        self._exiting_counts[owner] += is_exiting
        self._ready_items[pidfd] = _get_pod(owner), process
        self._epoll.register(pidfd, READABLE)
        return None

    def _unwatch_exit(self, process: ProcessKey) -> None:
        watched = self._watched.pop(process, None)
        if watched is None:
            return
        self._exiting_counts[watched.owner] -= watched.is_exiting
        if self._exiting_counts[watched.owner] <= 0:
            del self._exiting_counts[watched.owner]
        del self._ready_items[watched.pidfd]
        self._epoll.unregister(watched.pidfd)
        os.close(watched.pidfd)
        self._uncount_process(_get_pod(watched.owner))

    def _count_connection(self, owner: CgroupOwner | None, change: int) -> None:
        counts = self._connection_counts.copy()
        counts[owner] += change
        self._connection_counts = +counts

    def _uncount_process(self, pod: str) -> None:
        self._process_counts[pod] -= 1
        if self._process_counts[pod] <= 0:
            del self._process_counts[pod]
            self._pod_rates.forget_key(pod)


def _get_pod(owner: CgroupOwner | None) -> str:
    """Whose turn it is: processes in no pod are served like one pod."""
    return NODE if owner is None else owner.pod_uid


def _check_order(question: LibraryQuestion, connection: LibraryConnection) -> LibraryQuestion:
    if not connection.has_greeted and question.kind is not MessageKind.HELLO:
        raise LibraryProtocolError("a connection must begin with HELLO", sequence=question.sequence)
    return question
