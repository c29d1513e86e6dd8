"""The files of /proc/cgpu_km, as text: one command is one write(2). Calls last microseconds, `detach` longer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

FOLDER = Path("/proc/cgpu_km")


class Files(Protocol):
    """A folder of the kernel's. All raise `OSError`."""

    def read(self, node: str) -> str: ...
    def write(self, node: str, text: str) -> None: ...
    def try_to_open(self, node: str) -> None:
        """For writing, without doing it: profiles of the node may forbid what capabilities allow."""


class Procfs:
    """The real one."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder

    def read(self, node: str) -> str:
        return (self._folder / node).read_text()

    def write(self, node: str, text: str) -> None:
        opened = os.open(self._folder / node, os.O_WRONLY)
        try:
            os.write(opened, text.encode())
        finally:
            os.close(opened)

    def try_to_open(self, node: str) -> None:
        os.close(os.open(self._folder / node, os.O_WRONLY))
