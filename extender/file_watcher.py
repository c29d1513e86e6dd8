"""Loads files again when they change on disk: the configuration, and the certificate of the admission listener.

    stat --unchanged--> nothing
         --changed--> load --good--> applied
                           --bad--> the failure is reported once, and what was loaded before stays

Files are checked by path: kubelet changes a ConfigMap or a Secret by swapping a symlink above the file, which leaves the
file itself as it was. A worker thread checks and loads them, because a file may be on slow storage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

FileStamp = tuple[int, int, int]
"""Inode, time and size."""
FilesStamp = tuple[FileStamp, ...] | None
"""The stamp of each file; None when one of them cannot be read."""

_Loaded = TypeVar("_Loaded")


class WatchedFiles(Protocol[_Loaded]):
    """What a `FileWatcher` loads, and what becomes of it."""

    def load_files(self) -> _Loaded:
        """Read the files, in a worker thread. Raises `OSError` or `ValueError` when they cannot be used."""
        ...

    async def apply_files(self, loaded: _Loaded) -> None:
        """Use what was loaded."""

    def report_failure(self, error: OSError | ValueError) -> None:
        """Say why the files cannot be used."""


class FileWatcher(Generic[_Loaded]):
    """Follows files by inode, time and size."""

    def __init__(self, paths: Sequence[Path], files: WatchedFiles[_Loaded]) -> None:
        self._paths = paths
        self._files = files
        self._stamp: FilesStamp = ()
        """Empty before the first check, which loads: a file may have changed since it was read at the start."""

    def mark_loaded(self) -> None:
        """The caller is about to load the files itself: the next check loads them only if they changed since."""
        self._stamp = _read_stamp(self._paths)

    async def reload_if_changed(self) -> None:
        """Check once, and load the files if one of them changed since the last check."""
        stamp = await asyncio.to_thread(_read_stamp, self._paths)
        if stamp == self._stamp:
            return
        self._stamp = stamp  # taken before loading: the next check sees what is written meanwhile
        try:
            loaded = await asyncio.to_thread(self._files.load_files)
        except (OSError, ValueError) as error:
            self._files.report_failure(error)
            return
        await self._files.apply_files(loaded)


def _read_stamp(paths: Sequence[Path]) -> FilesStamp:
    try:
        found = [path.stat() for path in paths]
    except OSError:
        return None  # loading them says why
    return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)
