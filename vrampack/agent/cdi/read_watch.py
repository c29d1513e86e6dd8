"""Reports when a file has been read: inotify's `IN_CLOSE_NOWRITE` on the file itself, which survives a rename.

inotify does not say which process read it. This takes five libc calls, and ctypes is loaded for NVML anyway, so a library is not worth it.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

IN_OPEN = 0x20
IN_CLOSE_NOWRITE = 0x10
IN_ONESHOT = 0x80000000
IN_Q_OVERFLOW = 0x4000
_EVENT = struct.Struct("iIII")
"""Watch descriptor, mask, cookie, length of the name that follows: `struct inotify_event`, inotify(7)."""
_BUFFER_BYTES = 64 << 10


@dataclass(slots=True)
class FileRead:
    """One file, until it is read for the first time."""

    descriptor: int
    read: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_read(self) -> bool:
        return self.read.is_set()

    async def wait_for_read(self, timeout_seconds: float) -> bool:
        """Wait until the file is read; false after the timeout."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.read.wait()
        except TimeoutError:
            return False
        return True


class ReadWatch:
    """One inotify instance for all files; opened with the first of them."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = -1
        self._reads: dict[int, FileRead] = {}

    def watch_file(self, path: Path, mask: int = IN_CLOSE_NOWRITE) -> FileRead:
        """Watch the file from now on. Raises `OSError` when the node is out of inotify instances or watches."""
        if self._fd < 0:
            self._fd = self._call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)
            asyncio.get_running_loop().add_reader(self._fd, self._read_events)
        descriptor = self._call("inotify_add_watch", self._fd, os.fsencode(path), mask | IN_ONESHOT)
        found = self._reads[descriptor] = FileRead(descriptor)
        return found

    def forget_file(self, file: FileRead) -> None:
        """Stop watching it."""
        if self._reads.pop(file.descriptor, None) is not None and not file.is_read:
            # If the file is gone, the kernel has dropped the watch already.
            self._libc.inotify_rm_watch(self._fd, file.descriptor)

    def close(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
        self._fd = -1
        self._reads.clear()

    def _read_events(self) -> None:
        while True:
            try:
                events = os.read(self._fd, _BUFFER_BYTES)
            except BlockingIOError:
                return
            at = 0
            while at < len(events):
                descriptor, mask, _, length = _EVENT.unpack_from(events, at)
                at += _EVENT.size + length
                self._note_event(descriptor, mask)

    def _note_event(self, descriptor: int, mask: int) -> None:
        if mask & (IN_CLOSE_NOWRITE | IN_OPEN) and (found := self._reads.pop(descriptor, None)) is not None:
            found.read.set()

    def _call(self, name: str, *arguments: object) -> int:
        result = int(self._libc[name](*arguments))
        if result < 0:
            number = ctypes.get_errno()
            hint = "; raise fs.inotify.max_user_watches and max_user_instances" * (
                number in {errno.ENOSPC, errno.EMFILE}
            )
            raise OSError(number, f"{name}: {os.strerror(number)}{hint}")
        return result
