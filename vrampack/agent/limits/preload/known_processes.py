"""The processes that the library's socket knows: connected, or watched until they end; and what tells that one needs attention.

    HELLO --> connected --it hangs up--> what it held is uncharged, once it has ended
      ^           | we hang up, or it was connected before this agent started
      '-----------+--> watched: its pidfd reports its end

All of it belongs to the server's thread, except for `count_connections`.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from vrampack.agent.limits.cgroups import CgroupOwner
from vrampack.agent.limits.preload import peers
from vrampack.agent.limits.preload.rate_limit import RateLimits
from vrampack.agent.limits.preload.usage_ledger import ProcessKey
from vrampack.agent.limits.preload.wire import LibraryQuestion

NODE = ""
"""Instead of a pod: the node as a whole, and processes in no pod."""
READABLE = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT
"""Reported once, until it is asked for again: what waits for its turn costs nothing meanwhile."""


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


QueueItem: TypeAlias = LibraryConnection | ProcessKey
"""A connection to be read, or a process that has ended."""


class KnownProcesses:
    """`on_pod_gone` is told of a pod without any process left."""

    def __init__(self, limits: RateLimits, *, on_pod_gone: Callable[[str], None]) -> None:
        self._limits = limits
        self._on_pod_gone = on_pod_gone
        self.epoll = select.epoll()
        """Reports what the server listens on, too."""
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

    def count_connections(self) -> Counter[CgroupOwner | None]:
        """The number of connected processes by container."""
        return self._connection_counts

    def has_exiting_process(self, owner: CgroupOwner | None) -> bool:
        """Whether a process of the container is ending, so that memory is about to come back."""
        return self._exiting_counts[owner] > 0

    def is_full_for(self, process: ProcessKey, pod: str) -> bool:
        """Whether this process would be one too many. One that is known already takes its own place."""
        limits, count = self._limits, self._process_counts[pod]
        if process in self._connections or process in self._watched:
            return False
        is_node_full = len(self._connections) + len(self._watched) >= limits.node_max_processes
        return count >= limits.max_processes or (is_node_full and count >= limits.guaranteed_processes)

    def find_items(self, descriptors: Iterable[int]) -> list[tuple[str, QueueItem]]:
        """What is known by these descriptors, with its pod."""
        return [self._ready_items[descriptor] for descriptor in descriptors if descriptor in self._ready_items]

    def add_connection(self, connection: LibraryConnection) -> None:
        """Have it reported when it can be read. Of one process only the last connection counts."""
        process, pod = connection.process, name_pod(connection.owner)
        former = self._connections.get(process)
        if former is not None:  # the process reconnects: its next HELLO says what it holds
            self._close_connection(former)
        self.unwatch_exit(process)
        self._connections[process] = connection
        self._count_connection(connection.owner, 1)
        self._process_counts[pod] += 1
        self._ready_items[connection.socket.fileno()] = pod, connection
        self.epoll.register(connection.socket, READABLE)

    def await_message(self, connection: LibraryConnection) -> None:
        """Have it reported again when there is a message."""
        self.epoll.modify(connection.socket, READABLE)

    def accept_hang_up(self, connection: LibraryConnection) -> ProcessKey | None:
        """The process closed its connection, mostly by ending: uncharge what it held, if it said HELLO on this connection.

        A dying process may lose this connection before the driver's files. Until it has ended, what it holds must not be
        given to another. Returns the process if it holds nothing any more.
        """
        self._close_connection(connection)
        if not connection.has_greeted:
            return self.watch_exit(connection.process, connection.owner)
        if peers.is_ending(connection.process):
            return self.watch_exit(connection.process, connection.owner, is_exiting=True)
        return connection.process

    def disconnect(self, connection: LibraryConnection) -> ProcessKey | None:
        """Close the connection ourselves: the process lives on, and keeps what it holds. Returns it if it has ended already."""
        if not connection.open:
            return None
        self._close_connection(connection)
        return self.watch_exit(connection.process, connection.owner)

    def watch_exit(
        self, process: ProcessKey, owner: CgroupOwner | None, *, is_exiting: bool = False
    ) -> ProcessKey | None:
        """Have the process reported when it ends. Returns it if it has ended already."""
        pidfd = peers.open_pidfd(process)
        if pidfd is None:
            return process
        self._watched[process] = WatchedProcess(pidfd, owner, is_exiting)
        self._process_counts[name_pod(owner)] += 1
        self._exiting_counts[owner] += is_exiting
        self._ready_items[pidfd] = name_pod(owner), process
        self.epoll.register(pidfd, READABLE)
        return None

    def unwatch_exit(self, process: ProcessKey) -> None:
        watched = self._watched.pop(process, None)
        if watched is None:
            return
        self._exiting_counts[watched.owner] -= watched.is_exiting
        if self._exiting_counts[watched.owner] <= 0:
            del self._exiting_counts[watched.owner]
        del self._ready_items[watched.pidfd]
        self.epoll.unregister(watched.pidfd)
        os.close(watched.pidfd)
        self._uncount_process(name_pod(watched.owner))

    def close(self) -> None:
        """Close every descriptor. The processes keep what they hold."""
        for connection in list(self._connections.values()):
            self._close_connection(connection)
        for process in list(self._watched):
            self.unwatch_exit(process)
        self.epoll.close()

    def _close_connection(self, connection: LibraryConnection) -> None:
        if connection.retry is not None:
            connection.retry.cancel()
        connection.open = False
        del self._ready_items[connection.socket.fileno()]
        self.epoll.unregister(connection.socket)
        connection.socket.close()
        if self._connections.get(connection.process) is connection:
            del self._connections[connection.process]
        self._count_connection(connection.owner, -1)
        self._uncount_process(name_pod(connection.owner))

    def _count_connection(self, owner: CgroupOwner | None, change: int) -> None:
        counts = self._connection_counts.copy()
        counts[owner] += change
        self._connection_counts = +counts

    def _uncount_process(self, pod: str) -> None:
        self._process_counts[pod] -= 1
        if self._process_counts[pod] <= 0:
            del self._process_counts[pod]
            self._on_pod_gone(pod)


def name_pod(owner: CgroupOwner | None) -> str:
    """Whose turn it is: processes in no pod are served like one pod."""
    return NODE if owner is None else owner.pod_uid
