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
from vrampack.agent.limits.preload.known_processes import (
    NODE,
    KnownProcesses,
    LibraryConnection,
    QueueItem,
    name_pod,
)
from vrampack.agent.limits.preload.rate_limit import RateLimiter, RateLimits
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


@dataclass(frozen=True, slots=True)
class PendingDecision:
    """A question for the agent's loop."""

    connection: LibraryConnection
    question: LibraryQuestion
    is_memory_returning: bool


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
        self._known = KnownProcesses(limits, on_pod_gone=self._pod_rates.forget_key)
        self._epoll = self._known.epoll
        self._woken = asyncio.Event()
        self._listening: socket.socket | None = None
        self._queue: FairQueue[QueueItem] = FairQueue()

    @property
    def problem(self) -> str:
        """Why it answers no process any more; empty while it does."""
        is_alive = self._thread is not None and self._thread.is_alive()
        return "" if is_alive else "the thread that answers the library has ended; see the agent's log, and restart it"

    def count_connections(self) -> Counter[CgroupOwner | None]:
        """The number of connected processes by container."""
        return self._known.count_connections()

    def start(self, known_processes: Mapping[ProcessKey, CgroupOwner] | None = None) -> None:
        """Watch the processes known from before, listen, then take over the socket's name. Raises `OSError`."""
        for process, owner in (known_processes or {}).items():
            if self._known.watch_exit(process, owner) is not None:
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
        self._known.close()

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
                    ended = item if isinstance(item, ProcessKey) else self._known.disconnect(item)
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
        items = self._known.find_items(ready)
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
            elif (ended := self._known.disconnect(step.connection)) is not None:
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
        pod = name_pod(None if peer is None else peer.owner)
        self._take_tokens(pod, self._rate_limits.connection_cost)
        if peer is None or self._known.is_full_for(peer.process, pod):
            log.debug("connection refused peer=%s", peer)
            connected.close()
            return
        self._known.add_connection(LibraryConnection(connected, peer))

    def _read_item(self, item: QueueItem) -> LedgerStep | None:
        """What the ledger has to do with it; None for nothing."""
        if isinstance(item, ProcessKey):
            self._known.unwatch_exit(item)
            return item
        if not item.open:
            return None
        return self._pend(item, item.question) if item.question is not None else self._read_packet(item)

    def _read_packet(self, connection: LibraryConnection) -> LedgerStep | None:
        try:
            packet = connection.socket.recv(MAX_QUESTION_BYTES + 1)
        except BlockingIOError:
            self._known.await_message(connection)
            return None
        except OSError:
            return self._known.accept_hang_up(connection)
        if not packet and peers.is_hung_up(connection.socket):
            return self._known.accept_hang_up(connection)
        try:
            return self._pend(connection, _check_order(read_question(packet), connection))
        except LibraryProtocolError as error:
            log.warning("process disconnected pid=%s reason=%s", connection.process.pid, error)
            self._send_answer(connection, LibraryAnswer(LibraryVerdict.NOT_UNDERSTOOD, error.sequence))
            return self._known.disconnect(connection)

    def _pend(self, connection: LibraryConnection, question: LibraryQuestion) -> PendingDecision:
        is_hopeful = self._known.has_exiting_process(connection.owner) and not self._was_past_deadline(connection)
        return PendingDecision(connection, question, is_hopeful)

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
        self._known.await_message(connection)

    def _retry_question(self, connection: LibraryConnection) -> None:
        self._queue.push(name_pod(connection.owner), connection)
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


def _check_order(question: LibraryQuestion, connection: LibraryConnection) -> LibraryQuestion:
    if not connection.has_greeted and question.kind is not MessageKind.HELLO:
        raise LibraryProtocolError("a connection must begin with HELLO", sequence=question.sequence)
    return question
