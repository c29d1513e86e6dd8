"""OCI bundles as Docker and containerd make them without Kubernetes, with a first process that follows orders."""

from __future__ import annotations

import asyncio
import json
import subprocess
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from tests.shim.bundles import NAMESPACES, V2
from tests.support.cgroup_folders import remove_tree

SECONDS = 20
FROZEN = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
"""A root file system on a mount that cannot be written."""
LAYERED = """
set -e
mount -t tmpfs none "$1/proc"
mkdir "$1/proc/upper" "$1/proc/work"
mount -t overlay -o "lowerdir=$1,upperdir=$1/proc/upper,workdir=$1/proc/work" none "$1"
shift
exec "$@"
"""
"""One of an image's layer and a writable one, as engines store them."""


@dataclass
class HostBundleContainer:
    """One bundle. `cgroup` is the runtime's shape of path, where `ID` stands for the id."""

    folder: Path
    program: Path
    env: list[str]
    hook: list[str]
    cgroup: str = "/docker/ID"
    mounts: list[dict[str, object]] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid4().hex * 2)
    hooks: int = 1
    """How many times the hook is listed."""
    storage: str = ""
    """What makes its root file system, in a mount namespace around the runtime."""
    _process: Process | None = None

    def __post_init__(self) -> None:
        self.top = f"/vrampack-test-{uuid4().hex[:12]}"
        self.root.mkdir(parents=True)
        (self.root / "proc").mkdir()
        subprocess.run(["cp", self.program, self.root / "first"], check=True)

    @property
    def root(self) -> Path:
        return self.folder / "rootfs"

    def configure(self) -> None:
        """As the runtime does, at the last moment."""
        hook = {"path": self.hook[0], "args": ["vrampack-hook", *self.hook[1:]]}
        config = {
            "ociVersion": "1.0.2",
            "process": {
                "args": ["/first"],
                "cwd": "/",
                "env": ["PATH=/bin", *self.env],
                "user": {"uid": 0, "gid": 0},
            },
            "root": {"path": "rootfs", "readonly": True},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}, *self.mounts],
            "annotations": self.annotations,
            "hooks": {"createRuntime": [hook] * self.hooks},
            "linux": {
                "cgroupsPath": self.top + self.cgroup.replace("ID", self.id),
                "namespaces": [{"type": kind} for kind in NAMESPACES],
                "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            },
        }
        (self.folder / "config.json").write_text(json.dumps(config))

    async def start(self, mode: str) -> None:
        self.configure()
        runc = ["runc", f"--root={self.folder / 'runc'}", "run", f"--bundle={self.folder}", self.id]
        command = ["unshare", "--mount", "sh", "-c", V2, "sh", *runc] if mode == "v2" else runc
        if self.storage:
            command = ["unshare", "--mount", "sh", "-c", self.storage, "sh", str(self.root), *command]
        self._process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE)

    def attach(self, process: Process) -> None:
        """Use this process, which started the container."""
        self._process = process

    async def ask(self, order: str) -> str:
        """The answer of the first process; what runc prints when there is none."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{order}\n".encode())
        async with asyncio.timeout(SECONDS):
            line = await self._process.stdout.readline()
        return line.decode().strip() if line else await self.end()

    async def end(self) -> str:
        """End it by closing its input. Returns the rest of its output, and runc's errors."""
        assert self._process is not None
        async with asyncio.timeout(SECONDS):
            said, complaint = await self._process.communicate(b"")
        return (said + complaint).decode().strip()

    async def remove(self) -> None:
        if self._process is not None and self._process.returncode is None:
            await self.end()
        remove_tree(self.top)


@asynccontextmanager
async def container_removed(*containers: HostBundleContainer) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for container in containers:
            await container.remove()
