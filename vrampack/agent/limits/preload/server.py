"""The socket that the library asks, one connection for each process; when the connection ends, the process's memory is uncharged.

    connect --(who? pid, cgroup)--> HELLO --> HOLD, GIVE, LOOK ... --> end of connection: what it held is uncharged
                                      |  the agent dies, or hangs up on what it does not understand
                                      v
                          known and not connected: the process is watched until it ends, or says HELLO again

A container that asks too fast is read later, never refused for it, and delays no other container: every turn of the loop
reads a few messages of each connection. A question that cannot be answered yet delays only its own connection.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from vrampack.agent.limits.cgroups import CgroupOwner, FindOwner
from vrampack.agent.limits.preload import peers
from vrampack.agent.limits.preload.decisions import AllocationDecisions
from vrampack.agent.limits.preload.errors import LibraryProtocolError
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

BATCH_SIZE = 8
"""Messages of one connection, or new connections, in one turn of the loop: some 0.3 ms."""
EXIT_POLL_SECONDS = 0.005
"""How often to check whether a process has ended: most take less than a millisecond, one with much card memory longer."""
NAME_POLL_SECONDS = 0.1
"""How often to check for a container's name, which kubelet reports."""
ACCEPT_PAUSE_SECONDS = 1.0
"""How long new connections wait when no descriptor is left."""


@dataclass(frozen=True, slots=True)
class RateLimits:
    """What one container may do. Measured: a message costs the agent about 20 us, a connection about 150."""

    messages_per_second: float = 5000
    burst: float = 5000
    connection_cost: float = 5
    """In messages."""
    max_connections: int = 1024
    """The most processes of one container that are connected at once."""
    name_timeout_seconds: float = 15.0
    """How long a question waits for the pod's status, in which kubelet reports a container within a few seconds, or for the
    memory of a process of its container that is ending."""


ReadPause: TypeAlias = asyncio.TimerHandle | None


class LibraryConnection:
    """The connection of one process."""

    __slots__ = ("deadline", "has_greeted", "open", "owner", "paused", "process", "socket")

    def __init__(self, connected: socket.socket, peer: peers.PeerProcess) -> None:
        self.socket = connected
        self.process = peer.process
        self.owner = peer.owner
        self.has_greeted = False
        self.open = True
        self.paused: ReadPause = None
        """Set while reading is paused."""
        self.deadline: float | None = None
        """Until when its questions may wait for a name; None while none waits."""


class PreloadServer:
    """Serves one ledger."""

    def __init__(
        self,
        path: Path,
        ledger: UsageLedger,
        decisions: AllocationDecisions,
        *,
        find_owner: FindOwner,
        rate_limits: RateLimits | None = None,
    ) -> None:
        self._listener = UnixListener(path)
        self._ledger = ledger
        self._decisions = decisions
        self._find_owner = find_owner
        self._rate_limits = rate_limits or RateLimits()
        self._loop = asyncio.get_running_loop()
        self._rate_limiter = RateLimiter(
            per_second=self._rate_limits.messages_per_second, capacity=self._rate_limits.burst, clock=self._loop.time
        )
        self._listening: socket.socket | None = None
        self._connections: dict[ProcessKey, LibraryConnection] = {}
        self._connection_counts: Counter[CgroupOwner | None] = Counter()
        self._pidfds: dict[ProcessKey, int] = {}
        """Known processes without a connection, with the pidfd that reports their end."""
        self._exiting: dict[ProcessKey, CgroupOwner | None] = {}
        """Those of them that have begun to end."""

    def count_connections(self) -> Counter[CgroupOwner | None]:
        """The number of connected processes by container."""
        return +self._connection_counts

    def start(self, known_processes: Iterable[ProcessKey] = ()) -> None:
        """Watch the processes known from before, listen, then take over the socket's name."""
        for process in known_processes:
            self._watch_exit(process)
        self._listening = self._listener.bind_socket(socket.SOCK_SEQPACKET, mode=0o666)
        self._listening.listen(socket.SOMAXCONN)
        self._listener.publish_socket()
        self._loop.add_reader(self._listening, self._accept_connections)

    def stop(self) -> None:
        """Stop without uncharging anything: processes keep what they hold, and tell the next agent about it."""
        if self._listening is not None:
            self._loop.remove_reader(self._listening)
            self._listening.close()
            self._listener.remove_socket()
        for connection in list(self._connections.values()):
            self._close_connection(connection)
        for process in list(self._pidfds):
            self._unwatch_exit(process)

    def _accept_connections(self) -> None:
        if self._listening is None:
            return
        for _ in range(BATCH_SIZE):
            try:
                connected, _ = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                    raise
                log.error("connections paused error=%s", error)  # noqa: TRY400 - said, not traced
                self._loop.remove_reader(self._listening)
                self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._resume_accepting)
                return
            connected.settimeout(0)
            self._admit_connection(connected)

    def _resume_accepting(self) -> None:
        if self._listening is not None and self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening, self._accept_connections)

    def _admit_connection(self, connected: socket.socket) -> None:
        peer = peers.identify_peer(connected, self._find_owner)
        if peer is None or self._connection_counts[peer.owner] >= self._rate_limits.max_connections:
            log.debug("connection refused peer=%s", peer)
            connected.close()
            return
        connection = LibraryConnection(connected, peer)
        former = self._connections.get(peer.process)
        if former is not None:  # the process reconnects: its next HELLO says what it holds
            self._close_connection(former)
        self._unwatch_exit(peer.process)
        self._connections[peer.process] = connection
        self._connection_counts[peer.owner] += 1
        self._loop.add_reader(connected, self._read_packets, connection)
        self._throttle(connection, self._rate_limits.connection_cost)

    def _read_packets(self, connection: LibraryConnection) -> None:
        for _ in range(BATCH_SIZE):
            try:
                packet = connection.socket.recv(MAX_QUESTION_BYTES + 1)
            except BlockingIOError:
                return
            except OSError:
                self._on_disconnect(connection)
                return
            if not packet and peers.is_hung_up(connection.socket):
                self._on_disconnect(connection)
                return
            self._handle_packet(connection, packet)
            if not connection.open or connection.paused is not None:
                return

    def _handle_packet(self, connection: LibraryConnection, packet: bytes) -> None:
        try:
            question = _check_order(read_question(packet), connection)
        except LibraryProtocolError as error:
            log.warning("process disconnected pid=%s reason=%s", connection.process.pid, error)
            self._send_answer(connection, LibraryAnswer(LibraryVerdict.NOT_UNDERSTOOD, error.sequence))
            self._disconnect(connection)
            return
        self._answer_or_wait(connection, question)
        self._throttle(connection, 1)

    def _answer_or_wait(self, connection: LibraryConnection, question: LibraryQuestion) -> None:
        """Answer the question, or let its connection wait until it can be answered."""
        is_hopeful = connection.owner in self._exiting.values() and not self._was_past_deadline(connection)
        answer = self._decisions.decide(connection.process, connection.owner, question, is_memory_returning=is_hopeful)
        if not isinstance(answer, Unresolved):
            connection.deadline = None
            self._send_decision(connection, question, answer)
        elif self._is_past_deadline(connection):
            log.warning(
                "allocation refused pid=%s owner=%s reason=%s", connection.process.pid, connection.owner, answer.value
            )
            self._send_decision(connection, question, LibraryAnswer(LibraryVerdict.NO, question.sequence))
        else:
            seconds = EXIT_POLL_SECONDS if answer is Unresolved.MEMORY_RETURNING else NAME_POLL_SECONDS
            self._pause_reading(connection, seconds, lambda: self._answer_or_wait(connection, question))

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

    def _throttle(self, connection: LibraryConnection, cost: float) -> None:
        seconds = self._rate_limiter.take_tokens(connection.owner, cost)
        if seconds and connection.open and connection.paused is None:
            self._pause_reading(connection, seconds, lambda: None)

    def _pause_reading(self, connection: LibraryConnection, seconds: float, then: Callable[[], None]) -> None:
        """Stop reading for this long; then call `then`, and read on unless that paused it again."""
        if connection.paused is None:
            self._loop.remove_reader(connection.socket)

        def go_on() -> None:
            connection.paused = None
            self._loop.add_reader(connection.socket, self._read_packets, connection)
            then()

        connection.paused = self._loop.call_later(seconds, go_on)

    def _on_disconnect(self, connection: LibraryConnection) -> None:
        """The process closed its connection, mostly by ending: uncharge what it held, if it said HELLO on this connection.

        A dying process may lose this connection before the driver's files. Until it has ended, what it holds must not be
        given to another.
        """
        self._close_connection(connection)
        if not connection.has_greeted:
            self._watch_exit(connection.process)
        elif peers.is_ending(connection.process):
            self._watch_exit(connection.process)
            if connection.process in self._pidfds:
                self._exiting[connection.process] = connection.owner
        else:
            self._ledger.remove_process(connection.process)

    def _disconnect(self, connection: LibraryConnection) -> None:
        """Close the connection ourselves: the process lives on, and keeps what it holds."""
        self._close_connection(connection)
        self._watch_exit(connection.process)

    def _close_connection(self, connection: LibraryConnection) -> None:
        if connection.paused is not None:
            connection.paused.cancel()
        else:
            self._loop.remove_reader(connection.socket)
        connection.open = False
        connection.socket.close()
        if self._connections.get(connection.process) is connection:
            del self._connections[connection.process]
        self._connection_counts[connection.owner] -= 1
        if self._connection_counts[connection.owner] <= 0:
            del self._connection_counts[connection.owner]
            self._rate_limiter.forget_key(connection.owner)

    def _watch_exit(self, process: ProcessKey) -> None:
        """Uncharge what it holds when it ends. A process that holds nothing is not watched."""
        if not self._ledger.is_holding(process):
            self._ledger.remove_process(process)
            return
        pidfd = peers.open_pidfd(process)
        if pidfd is None:
            self._ledger.remove_process(process)
            return
        self._pidfds[process] = pidfd
        self._loop.add_reader(pidfd, self._on_exit, process)

    def _on_exit(self, process: ProcessKey) -> None:
        self._unwatch_exit(process)
        self._ledger.remove_process(process)

    def _unwatch_exit(self, process: ProcessKey) -> None:
        self._exiting.pop(process, None)
        pidfd = self._pidfds.pop(process, None)
        if pidfd is not None:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)


def _check_order(question: LibraryQuestion, connection: LibraryConnection) -> LibraryQuestion:
    if not connection.has_greeted and question.kind is not MessageKind.HELLO:
        raise LibraryProtocolError("a connection must begin with HELLO", sequence=question.sequence)
    return question
