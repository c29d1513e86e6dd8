"""A plugin of pytest: each of `make e2e`'s workers lives in a network namespace of its own, so their fixed ports do not meet.

Only the calling thread moves, and every thread and process that it starts later: xdist's own speak through pipes.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct

import pytest

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP = 0x1
IFREQ = "16sh22x"
"""A name and its flags, in a structure of 40 bytes: `struct ifreq` of <linux/if.h>."""


def pytest_configure(config: pytest.Config) -> None:
    """Raises `OSError` without CAP_SYS_ADMIN."""
    if hasattr(config, "workerinput"):
        _leave_the_network()


def _leave_the_network() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"unshare(CLONE_NEWNET): {os.strerror(ctypes.get_errno())}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack(IFREQ, b"lo", IFF_UP))
