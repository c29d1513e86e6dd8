"""Unix sockets with a fixed name, which an agent takes over while the agent before it may still run."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_CREDENTIALS = struct.Struct("3i")
"""`struct ucred`: pid, uid, gid."""


class UnixListener:
    """Listen first, then take over the socket's name: a client never finds a socket that does not answer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unpublished_path = path.with_suffix(".new")
        self._inode = 0

    def bind_socket(self, kind: socket.SocketKind, *, mode: int) -> socket.socket:
        """A non-blocking socket, bound beside the name, with the permissions `mode`. Raises `OSError`."""
        self._unpublished_path.unlink(missing_ok=True)
        made = socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK)
        try:
            made.bind(str(self._unpublished_path))
            self._unpublished_path.chmod(mode)
            self._inode = self._unpublished_path.stat().st_ino
        except OSError:
            made.close()
            raise
        return made

    def publish_socket(self) -> None:
        """Rename the new socket over the old one."""
        self._unpublished_path.rename(self._path)

    def remove_socket(self) -> None:
        """Remove the name, unless another agent has taken it over. A name that cannot be removed stays: the next agent replaces it."""
        with suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()


@dataclass(frozen=True, slots=True)
class PeerCredentials:
    """The process that connected, according to the kernel; the pid is in our PID namespace, 0 for a process outside it."""

    pid: int
    uid: int


def read_peer_credentials(connected: socket.socket) -> PeerCredentials:
    pid, uid, _ = _CREDENTIALS.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return PeerCredentials(pid, uid)
