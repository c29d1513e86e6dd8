"""The files of /proc/cgpu_km, as text: one command is one write(2). Calls take microseconds, `detach` longer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

PROC_FOLDER = Path("/proc/cgpu_km")


class ModuleFiles(Protocol):
    """The module's folder in /proc. All methods raise `OSError`."""

    def read_file(self, file_name: str) -> str: ...
    def write_file(self, file_name: str, text: str) -> None: ...
    def check_writable(self, file_name: str) -> None:
        """Open the file for writing, without writing: the node's profiles may forbid what capabilities allow."""


class ProcfsModuleFiles:
    """The real folder."""

    def __init__(self, folder: Path = PROC_FOLDER) -> None:
        self._folder = folder

    def read_file(self, file_name: str) -> str:
        return (self._folder / file_name).read_text()

    def write_file(self, file_name: str, text: str) -> None:
        opened = os.open(self._folder / file_name, os.O_WRONLY)
        try:
            os.write(opened, text.encode())
        finally:
            os.close(opened)

    def check_writable(self, file_name: str) -> None:
        os.close(os.open(self._folder / file_name, os.O_WRONLY))
