"""A container runtime as far as CDI goes: a process of its own that keeps a cache of the specs in its folders, as containerd does.

    runtime = await start_cdi_runtime(folder)
    await runtime.resolve("vrampack.dev/card=0f..")      the edits, or None: creation of the container would fail

It reads every spec again whenever inotify says that the folder changed, and only then: a resolution reads nothing
(container-device-interface, pkg/cdi/cache.go). Only renames within the folder are reported to it, as in CDI 1.1.0.
It looks for a missing folder again when another one has changed, and when a device is resolved; at no other time.
As a program: `python -m tests.fakes.cdi_runtime NAME FOLDER..`, names on standard input, edits on standard output.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import select
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

IN_MODIFY, IN_MOVED_FROM, IN_DELETE = 0x2, 0x40, 0x200
PR_SET_NAME = 15

Edits = dict[str, Any]


class CdiRuntime:
    """The process, from outside."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def resolve(self, qualified_name: str) -> Edits | None:
        """What the runtime would change in a container that has this device; None: there is no such device."""
        found: Edits | None = json.loads(await self._ask(qualified_name))
        return found

    async def close(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def wait_until_up(self) -> None:
        await self._ask("")

    async def _ask(self, line: str) -> bytes:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("started without pipes")
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()
        return await self._process.stdout.readline()


async def start_cdi_runtime(*folders: Path, name: str = "containerd") -> CdiRuntime:
    """A runtime that reads these folders, as the process `name`. Its first scan is over. One without CDI reads an empty folder."""
    arguments = ("-m", "tests.fakes.cdi_runtime", name, *map(os.fspath, folders))
    runtime = CdiRuntime(
        await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=PIPE, stdout=PIPE, limit=1 << 20)
    )
    await runtime.wait_until_up()
    return runtime


class _Folders:
    """The folders that are watched, and those that do not exist yet."""

    def __init__(self, folders: list[Path]) -> None:
        self._libc = ctypes.CDLL(None)
        self.watch = self._libc.inotify_init()
        self._missing = folders
        self._watched: list[Path] = []

    def scan_folders(self) -> dict[str, Edits]:
        for folder in list(self._missing):
            if (
                self._libc.inotify_add_watch(self.watch, os.fsencode(folder), IN_MODIFY | IN_MOVED_FROM | IN_DELETE)
                >= 0
            ):
                self._missing.remove(folder)
                self._watched.append(folder)
        return {name: edits for folder in self._watched for name, edits in _scan_folder(folder).items()}

    @property
    def are_all_watched(self) -> bool:
        return not self._missing


def _scan_folder(folder: Path) -> dict[str, Edits]:
    """Devices by qualified name. A file that cannot be read is left out, as the cache does."""
    devices: dict[str, Edits] = {}
    for path in sorted(path for path in folder.iterdir() if path.suffix in {".json", ".yaml"}):
        try:
            spec = json.loads(path.read_bytes())
            devices |= {f"{spec['kind']}={device['name']}": device["containerEdits"] for device in spec["devices"]}
        except (OSError, ValueError, TypeError, KeyError):
            continue
    return devices


def _run(name: str, folders: list[Path]) -> None:
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())
    cache = _Folders(folders)
    devices = cache.scan_folders()
    while True:
        ready, _, _ = select.select([cache.watch, sys.stdin.fileno()], [], [])
        if cache.watch in ready:
            os.read(cache.watch, 1 << 16)
            devices = cache.scan_folders()
        else:
            line = os.read(sys.stdin.fileno(), 4096).decode()
            if not line:
                return
            if line.strip() and not cache.are_all_watched:
                devices = cache.scan_folders()
            os.write(sys.stdout.fileno(), json.dumps(devices.get(line.strip())).encode() + b"\n")


if __name__ == "__main__":
    _run(sys.argv[1], [Path(folder) for folder in sys.argv[2:]])
