"""A container runtime as far as CDI goes: a process of its own that keeps a cache of the specs in its folders, as containerd does.

    runtime = await start_cdi_runtime(folder)
    await runtime.resolve("vrampack.dev/card=0f..")      the edits, or None: creation of the container would fail

It reads every spec again whenever inotify says that the folder changed, and only then: a resolution reads nothing
(container-device-interface, pkg/cdi/cache.go). The renames it is told of are those within the folder, as CDI 1.1.0 has it.
As a program: `python -m tests.fakes.cdi_runtime NAME FOLDER`, names on standard input, edits on standard output.
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
        """What the runtime would change in a container that has this device; None: it knows no such device."""
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


async def start_cdi_runtime(folder: Path, *, name: str = "containerd") -> CdiRuntime:
    """A runtime that reads this folder, as the process `name`. Its first scan is over. One without CDI reads an empty folder."""
    arguments = ("-m", "tests.fakes.cdi_runtime", name, os.fspath(folder))
    runtime = CdiRuntime(
        await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=PIPE, stdout=PIPE, limit=1 << 20)
    )
    await runtime.wait_until_up()
    return runtime


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


def _run(name: str, folder: Path) -> None:
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_NAME, name.encode())
    watch = libc.inotify_init()
    libc.inotify_add_watch(watch, os.fsencode(folder), IN_MODIFY | IN_MOVED_FROM | IN_DELETE)
    devices = _scan_folder(folder)
    while True:
        ready, _, _ = select.select([watch, sys.stdin.fileno()], [], [])
        if watch in ready:
            os.read(watch, 1 << 16)
            devices = _scan_folder(folder)
        else:
            line = os.read(sys.stdin.fileno(), 4096)
            if not line:
                return
            os.write(sys.stdout.fileno(), json.dumps(devices.get(line.decode().strip())).encode() + b"\n")


if __name__ == "__main__":
    _run(sys.argv[1], Path(sys.argv[2]))
