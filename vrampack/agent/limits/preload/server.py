"""The socket that the library asks, one connection for each process: its life is the process's, its end gives back.

    connect --(who? pid, cgroup)--> HELLO --> HOLD, GIVE, LOOK ... --> end of connection: what it held comes back
                                      |  the agent dies, or hangs up on what it does not understand
                                      v
                          known and not connected: the process is watched, its end gives back, its next HELLO counts

A container that asks too fast is read later, never refused for it, and holds nobody else up: every turn of the loop
reads a few messages of each connection. A question that cannot be answered yet waits with its own connection only.
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

from vrampack.agent.limits.cgroups import Owner
from vrampack.agent.limits.doors import Door
from vrampack.agent.limits.preload import peers
from vrampack.agent.limits.preload.answers import Answers, Unnamed
from vrampack.agent.limits.preload.buckets import Buckets
from vrampack.agent.limits.preload.errors import WireError
from vrampack.agent.limits.preload.ledger import Ledger, Process
from vrampack.agent.limits.preload.wire import (
    MOST_QUESTION_BYTES,
    Answer,
    Kind,
    Question,
    Verdict,
    read_question,
    write_answer,
)

log = logging.getLogger(__name__)

AT_ONCE = 8
"""Messages of one connection, or new connections, in one turn of the loop: some 0.3 ms."""
LEAVING_SECONDS = 0.005
"""Between two looks whether a process has ended: most take less than a millisecond, one with much memory of a card longer."""
AGAIN_SECONDS = 0.1
"""Between two looks for a container's name, which is kubelet's to report."""
FULL_SECONDS = 1.0
"""How long nobody new is let in when there is no descriptor left."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What one container may do. Measured: a message costs the agent some 20 us, a connection some 150."""

    messages_per_second: float = 5000
    burst: float = 5000
    connection_costs: float = 5
    """In messages."""
    connections: int = 1024
    """Processes of one container that are connected at once."""
    name_seconds: float = 15.0
    """How long a question waits for the pod's status; kubelet reports a container within a few seconds. Or for memory that
    a process of its container has while it ends."""


Paused: TypeAlias = asyncio.TimerHandle | None


class Connection:
    """One process that is connected."""

    __slots__ = ("deadline", "has_greeted", "open", "owner", "paused", "process", "socket")

    def __init__(self, connected: socket.socket, peer: peers.Peer) -> None:
        self.socket = connected
        self.process = peer.process
        self.owner = peer.owner
        self.has_greeted = False
        self.open = True
        self.paused: Paused = None
        """Set while it is not read."""
        self.deadline: float | None = None
        """Until when its questions may wait for a name; None while none has to."""


class PreloadServer:
    """Serves one ledger."""

    def __init__(
        self, path: Path, ledger: Ledger, answers: Answers, *, owner_of: peers.OwnerOf, pace: Pace | None = None
    ) -> None:
        self._door = Door(path)
        self._ledger = ledger
        self._answers = answers
        self._owner_of = owner_of
        self._pace = pace or Pace()
        self._loop = asyncio.get_running_loop()
        self._buckets = Buckets(per_second=self._pace.messages_per_second, most=self._pace.burst, clock=self._loop.time)
        self._listening: socket.socket | None = None
        self._connections: dict[Process, Connection] = {}
        self._connected: Counter[Owner | None] = Counter()
        self._watched: dict[Process, int] = {}
        """Who is known and not connected, with the descriptor that says its end."""
        self._leaving: dict[Process, Owner | None] = {}
        """Of those, who has begun to end."""

    def connected(self) -> Counter[Owner | None]:
        """Processes by container."""
        return +self._connected

    def start(self, known: Iterable[Process] = ()) -> None:
        """Watch those who are known from before, listen, then take the name from whoever had it."""
        for process in known:
            self._watch(process)
        self._listening = self._door.make(socket.SOCK_SEQPACKET, mode=0o666)
        self._listening.listen(socket.SOMAXCONN)
        self._door.take()
        self._loop.add_reader(self._listening, self._accept)

    def stop(self) -> None:
        """Give nothing back: who holds something holds it on, and says so to the next agent."""
        if self._listening is not None:
            self._loop.remove_reader(self._listening)
            self._listening.close()
            self._door.leave()
        for connection in list(self._connections.values()):
            self._close(connection)
        for process in list(self._watched):
            self._unwatch(process)

    def _accept(self) -> None:
        if self._listening is None:
            return
        for _ in range(AT_ONCE):
            try:
                connected, _ = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                    raise
                log.error("nobody new is let in for a moment error=%s", error)  # noqa: TRY400 - said, not traced
                self._loop.remove_reader(self._listening)
                self._loop.call_later(FULL_SECONDS, self._accept_again)
                return
            connected.settimeout(0)
            self._welcome(connected)

    def _accept_again(self) -> None:
        if self._listening is not None and self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening, self._accept)

    def _welcome(self, connected: socket.socket) -> None:
        peer = peers.peer_of(connected, self._owner_of)
        if peer is None or self._connected[peer.owner] >= self._pace.connections:
            log.debug("not let in peer=%s", peer)
            connected.close()
            return
        connection = Connection(connected, peer)
        former = self._connections.get(peer.process)
        if former is not None:  # it speaks anew: its next HELLO says what it holds
            self._close(former)
        self._unwatch(peer.process)
        self._connections[peer.process] = connection
        self._connected[peer.owner] += 1
        self._loop.add_reader(connected, self._read, connection)
        self._slow_down(connection, self._pace.connection_costs)

    def _read(self, connection: Connection) -> None:
        for _ in range(AT_ONCE):
            try:
                packet = connection.socket.recv(MOST_QUESTION_BYTES + 1)
            except BlockingIOError:
                return
            except OSError:
                self._ended(connection)
                return
            if not packet and peers.is_hung_up(connection.socket):
                self._ended(connection)
                return
            self._hear(connection, packet)
            if not connection.open or connection.paused is not None:
                return

    def _hear(self, connection: Connection, packet: bytes) -> None:
        try:
            question = _in_order(read_question(packet), connection)
        except WireError as error:
            log.warning("hung up on a process pid=%s why=%s", connection.process.pid, error)
            self._say(connection, Answer(Verdict.NOT_UNDERSTOOD, error.sequence))
            self._cut(connection)
            return
        self._ask(connection, question)
        self._slow_down(connection, 1)

    def _ask(self, connection: Connection, question: Question) -> None:
        """Answer it, or let its connection wait until that can be done."""
        is_hopeful = connection.owner in self._leaving.values() and not self._was_late(connection)
        answer = self._answers.answer(connection.process, connection.owner, question, is_somebody_leaving=is_hopeful)
        if not isinstance(answer, Unnamed):
            connection.deadline = None
            self._answer(connection, question, answer)
        elif self._is_late(connection):
            log.warning("refused pid=%s owner=%s why=%s", connection.process.pid, connection.owner, answer.value)
            self._answer(connection, question, Answer(Verdict.NO, question.sequence))
        else:
            seconds = LEAVING_SECONDS if answer is Unnamed.LEAVING else AGAIN_SECONDS
            self._pause(connection, seconds, lambda: self._ask(connection, question))

    def _is_late(self, connection: Connection) -> bool:
        """Whether its questions waited long enough, this one or those before."""
        if connection.deadline is None:
            connection.deadline = self._loop.time() + self._pace.name_seconds
        return self._was_late(connection)

    def _was_late(self, connection: Connection) -> bool:
        return connection.deadline is not None and self._loop.time() >= connection.deadline

    def _answer(self, connection: Connection, question: Question, answer: Answer) -> None:
        connection.has_greeted = True
        if question.kind is not Kind.GIVE:
            self._say(connection, answer)

    def _say(self, connection: Connection, answer: Answer) -> None:
        try:
            connection.socket.send(write_answer(answer))
        except OSError as error:  # gone, which its next read says too; or it does not listen
            log.debug("not answered pid=%s error=%s", connection.process.pid, error)

    def _slow_down(self, connection: Connection, cost: float) -> None:
        seconds = self._buckets.take(connection.owner, cost)
        if seconds and connection.open and connection.paused is None:
            self._pause(connection, seconds, lambda: None)

    def _pause(self, connection: Connection, seconds: float, then: Callable[[], None]) -> None:
        """Do not read it for so long; then do that, and read on unless it paused again."""
        if connection.paused is None:
            self._loop.remove_reader(connection.socket)

        def go_on() -> None:
            connection.paused = None
            self._loop.add_reader(connection.socket, self._read, connection)
            then()

        connection.paused = self._loop.call_later(seconds, go_on)

    def _ended(self, connection: Connection) -> None:
        """The process closed it, mostly by ending: what it held comes back. Without a HELLO that was not said on this one.

        The kernel closes what a dying process opened last first: this connection before the driver's files. Until it has
        ended, what it holds may not be given to another.
        """
        self._close(connection)
        if not connection.has_greeted:
            self._watch(connection.process)
        elif peers.is_ending(connection.process):
            self._watch(connection.process)
            if connection.process in self._watched:
                self._leaving[connection.process] = connection.owner
        else:
            self._ledger.ended(connection.process)

    def _cut(self, connection: Connection) -> None:
        """We close it: the process lives, and holds what it holds."""
        self._close(connection)
        self._watch(connection.process)

    def _close(self, connection: Connection) -> None:
        if connection.paused is not None:
            connection.paused.cancel()
        else:
            self._loop.remove_reader(connection.socket)
        connection.open = False
        connection.socket.close()
        if self._connections.get(connection.process) is connection:
            del self._connections[connection.process]
        self._connected[connection.owner] -= 1
        if self._connected[connection.owner] <= 0:
            del self._connected[connection.owner]
            self._buckets.forget(connection.owner)

    def _watch(self, process: Process) -> None:
        """Take back what it holds when it ends. One that holds nothing needs no watching."""
        if not self._ledger.holds(process):
            self._ledger.ended(process)
            return
        pidfd = peers.watched(process)
        if pidfd is None:
            self._ledger.ended(process)
            return
        self._watched[process] = pidfd
        self._loop.add_reader(pidfd, self._is_gone, process)

    def _is_gone(self, process: Process) -> None:
        self._unwatch(process)
        self._ledger.ended(process)

    def _unwatch(self, process: Process) -> None:
        self._leaving.pop(process, None)
        pidfd = self._watched.pop(process, None)
        if pidfd is not None:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)


def _in_order(question: Question, connection: Connection) -> Question:
    if not connection.has_greeted and question.kind is not Kind.HELLO:
        raise WireError("a connection begins with HELLO", sequence=question.sequence)
    return question
