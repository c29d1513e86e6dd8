"""Identifies the other end of a connection: its process, and the pod and container in whose cgroup it is.

The kernel gives the pid (SO_PEERCRED); everything else is read from /proc by that pid, which another process may have by then.
So a pidfd is opened first: what was read is trusted only if its process still runs afterwards.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from dataclasses import dataclass
from pathlib import Path

from vrampack.agent.limits import unix_listener
from vrampack.agent.limits.cgroups import CgroupOwner, FindOwner
from vrampack.agent.limits.preload.usage_ledger import ProcessKey

SO_PEERPIDFD = 77
"""Linux 6.5: the process that connected, even if its number has been reused since."""
PF_EXITING = 4
"""A flag in /proc/PID/stat: the process is exiting. The same in every kernel since 2.6."""
_FLAGS = 6
_STARTED = 19
"""The 9th and the 22nd field of /proc/PID/stat, counted after the program's name, which may contain spaces and brackets."""


@dataclass(frozen=True, slots=True)
class PeerProcess:
    process: ProcessKey
    owner: CgroupOwner | None
    """None for a process that is in no pod."""


def identify_peer(connection: socket.socket, find_owner: FindOwner) -> PeerProcess | None:
    """The process of a connection; None when it is gone, or not visible from here (the agent runs without `hostPID`)."""
    pid = unix_listener.read_peer_credentials(connection).pid
    if pid <= 0:
        return None
    pidfd = _get_peer_pidfd(connection, pid)
    if pidfd is None:
        return None
    try:
        started_ticks = read_start_ticks(pid)
        owner = find_owner(pid)
        if started_ticks is None or has_ended(pidfd) or is_hung_up(connection):
            return None
        return PeerProcess(ProcessKey(pid, started_ticks), owner)
    finally:
        os.close(pidfd)


def open_pidfd(process: ProcessKey) -> int | None:
    """A descriptor that becomes readable when this process ends; None when it has ended."""
    pidfd = _try_open_pidfd(process.pid)
    if pidfd is None:
        return None
    if read_start_ticks(process.pid) != process.started_ticks or has_ended(pidfd):
        os.close(pidfd)
        return None
    return pidfd


def read_start_ticks(pid: int, proc: Path = Path("/proc")) -> int | None:
    """When the process started, in ticks since boot; None when there is no such process."""
    fields = _read_stat_fields(pid, proc)
    return None if fields is None else int(fields[_STARTED])


def is_ending(process: ProcessKey, proc: Path = Path("/proc")) -> bool:
    """Whether it is exiting or has ended: it runs none of its own code any more, and its files are being closed."""
    fields = _read_stat_fields(process.pid, proc)
    return fields is None or int(fields[_STARTED]) != process.started_ticks or bool(int(fields[_FLAGS]) & PF_EXITING)


def has_ended(pidfd: int) -> bool:
    """Whether the process has ended. A zombie has: its files are closed."""
    return _has_event(pidfd, select.POLLIN)


def is_hung_up(connection: socket.socket) -> bool:
    """Whether every process of the connection has ended."""
    return _has_event(connection.fileno(), select.POLLHUP | select.POLLRDHUP)


def read_boot_id(proc: Path = Path("/proc")) -> str:
    """An id that changes with each boot."""
    return (proc / "sys/kernel/random/boot_id").read_text().strip()


def _get_peer_pidfd(connection: socket.socket, pid: int) -> int | None:
    try:
        return connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as error:
        # An older kernel: if the connection is still open afterwards, it was the right process; else that one is gone.
        return _try_open_pidfd(pid) if error.errno == errno.ENOPROTOOPT else None


def _read_stat_fields(pid: int, proc: Path) -> list[str] | None:
    """The fields of /proc/PID/stat after the name; None when there is no such process."""
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def _try_open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _has_event(descriptor: int, events: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, events)
    return bool(poll.poll(0))
