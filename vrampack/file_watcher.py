"""Loads files again when they change on disk: the configuration, and the certificates of listeners.

    stat --unchanged, in use--> nothing
         --changed--> load --good--> apply --done--> in use
                           --bad--------'--failed--> reported once; what was loaded before stays in use, and after more
                                                     and more checks the files are loaded again

Files are checked by path: kubelet changes a ConfigMap or a Secret by swapping a symlink above the file, which leaves the
file itself as it was. A worker thread checks and loads them, because a file may be on slow storage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

MAX_CHECKS_BETWEEN_TRIES = 16
"""Half a minute where files are checked every two seconds: most failures that pass by themselves are those of an API server."""

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

    async def apply_files(self, loaded: _Loaded) -> str:
        """Use what was loaded. Returns why it cannot be used now, if nothing has changed; empty: it is in use."""
        ...

    def report_failure(self, text: str) -> None:
        """Say why the files are not in use. They are tried again; a failure with the same text is not reported again."""


class FileWatcher(Generic[_Loaded]):
    """Follows files by inode, time and size."""

    def __init__(self, paths: Sequence[Path], files: WatchedFiles[_Loaded]) -> None:
        self._paths = paths
        self._files = files
        self._stamp: FilesStamp = ()
        """Empty before the first check, which loads: a file may have changed since it was read at the start."""
        self._failures = 0
        """How often these files could not be used."""
        self._checks_left = 0
        """After how many checks they are tried again."""
        self._reported = ""

    def mark_loaded(self) -> None:
        """The caller is about to load the files itself: the next check loads them only if they changed since."""
        self._stamp = _read_stamp(self._paths)

    async def reload_if_changed(self) -> None:
        """Check once, and load the files if one of them changed since the last check, or a retry is due."""
        try:
            stamp = await asyncio.to_thread(_read_stamp, self._paths)
        except RuntimeError as error:  # no thread can be started now
            self._record_failure(str(error))
            return
        if stamp != self._stamp:
            self._stamp = stamp  # taken before loading: the next check sees what is written meanwhile
            self._failures, self._reported = 0, ""
        elif not self._is_retry_due():
            return
        try:
            loaded = await asyncio.to_thread(self._files.load_files)
        except (OSError, ValueError, RuntimeError) as error:
            self._record_failure(str(error))
            return
        if problem := await self._files.apply_files(loaded):
            self._record_failure(problem)
        else:
            self._failures, self._reported = 0, ""

    def _is_retry_due(self) -> bool:
        """Count this check. Whatever failed, files or what they were applied to, may be well by now."""
        self._checks_left -= 1
        return self._failures > 0 and self._checks_left <= 0

    def _record_failure(self, text: str) -> None:
        self._checks_left = min(2**self._failures, MAX_CHECKS_BETWEEN_TRIES)
        self._failures += 1
        if text != self._reported:
            self._reported = text
            self._files.report_failure(text)


def _read_stamp(paths: Sequence[Path]) -> FilesStamp:
    try:
        found = [path.stat() for path in paths]
    except OSError:
        return None  # loading them says why
    return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)
