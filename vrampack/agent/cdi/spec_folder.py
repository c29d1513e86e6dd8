"""Our specs in the folder that the runtime reads: one file for each name, written atomically, and recognized by its name.

A spec is written under a name that no runtime reads and renamed within the folder: readers of CDI 1.1.0 and older miss
a rename from elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from vrampack.agent.cdi.errors import CdiError
from vrampack.agent.cdi.read_watch import FileRead, ReadWatch
from vrampack.agent.inventory.cdi_files import OUR_PREFIX, is_spec_of_ours

PROBE_NAME = "probe"


class SpecFolder:
    """The writer of one folder. Two agents never write one: kubelet knows one plugin of the resource."""

    def __init__(self, folder: Path, watch: ReadWatch) -> None:
        self._folder = folder
        self._watch = watch
        self._was_seen = False

    def write_spec(self, name: str, content: bytes) -> FileRead | None:
        """Write or rewrite a spec. Returns the watch for its first read, None when the node cannot watch files.

        Raises `CdiError` when the folder is missing, full or not writable.
        """
        making = self._folder / f".{OUR_PREFIX}{name}.tmp"
        try:
            making.unlink(missing_ok=True)
            descriptor = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            read = self._watch_file(making)
            making.rename(self._get_path(name))
        except OSError as error:
            with suppress(OSError):
                making.unlink(missing_ok=True)
            raise CdiError(f"no spec can be written into {self._folder}: {error.strerror or error}") from error
        return read

    def write_probe(self, target: Path) -> None:
        """Write a spec that is a link: each reader of the folder opens `target` as it sees it. Raises `CdiError`."""
        making = self._folder / f".{OUR_PREFIX}{PROBE_NAME}.tmp"
        try:
            making.unlink(missing_ok=True)
            making.symlink_to(target)
            making.rename(self._get_path(PROBE_NAME))
        except OSError as error:
            raise CdiError(f"no spec can be written into {self._folder}: {error.strerror or error}") from error

    def remove_spec(self, name: str) -> None:
        """Delete a spec; it may be gone already, and so may the folder."""
        with suppress(OSError):
            self._get_path(name).unlink(missing_ok=True)

    def remove_all_specs(self) -> int:
        """Delete our specs, half-written ones too. Returns how many; 0 when there is no folder."""
        found = [path for path in self._list_files() if is_spec_of_ours(path.name)]
        for path in found:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        return len(found)

    def is_removed(self) -> bool:
        """Whether the folder was removed, and perhaps replaced by another.

        In a container it is a mount, which keeps showing the removed folder: only a new container sees the other.
        """
        try:
            self._was_seen |= (links := os.stat(self._folder).st_nlink) > 0  # noqa: PTH116 - no Path is made for a number
        except FileNotFoundError:
            return self._was_seen
        except OSError:  # a folder that cannot be read is not gone
            return False
        return links == 0

    def _watch_file(self, path: Path) -> FileRead | None:
        try:
            return self._watch.watch_file(path)
        except OSError:
            return None

    def _list_files(self) -> list[Path]:
        try:
            return sorted(self._folder.iterdir())
        except OSError:
            return []

    def _get_path(self, name: str) -> Path:
        return self._folder / f"{OUR_PREFIX}{name}.json"


def wake_readers(folders: Iterable[Path]) -> None:
    """Make runtimes check again for folders that were missing when they started.

    containerd does so when something changes in a folder that it watches already (container-device-interface,
    pkg/cdi/cache.go). So this creates and deletes a file, not a spec, in each folder that is writable.
    """
    for folder in folders:
        path = folder / f".{OUR_PREFIX}{PROBE_NAME}.tmp"
        with suppress(OSError):
            path.touch(0o600)
            path.unlink()
