"""A containerd of its own for a test, in a mount namespace of its own, and containers that `ctr` runs on it."""

from __future__ import annotations

import asyncio
import subprocess
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.shim.hostbundles import HostBundleContainer

CONFIG = """
version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "{folder}/containerd.sock"
"""
PRIVATE = """
set -e
mount --make-rprivate /
mount -t tmpfs none /run
mkdir /run/vrampack
mount --bind "$1" /run/vrampack
[ "$2" = v1 ] || mount -t cgroup2 cgroup2 /sys/fs/cgroup
shift 2
exec "$@"
"""
"""The hook finds the agent at its usual path."""


@dataclass
class Containerd:
    folder: Path

    def ctr(self, *words: str) -> list[str]:
        return ["ctr", f"--address={self.folder}/containerd.sock", *words]

    async def run(self, container: HostBundleContainer, runtime: Path) -> Process:
        """`ctr run` with the orders of its first process on standard input."""
        env = [word for each in container.env for word in ("--env", each)]
        cgroup = f"--cgroup={container.top}/default/{container.id}"
        places = (f"--runc-binary={runtime}", f"--fifo-dir={self.folder}/fifo", cgroup)
        command = self.ctr("run", "--rm", *places, *env, "--rootfs", str(container.root))
        return await asyncio.create_subprocess_exec(
            *command, container.id, "/first", stdin=PIPE, stdout=PIPE, stderr=PIPE
        )

    async def answers(self) -> bool:
        ask = self.ctr("version")
        return await (await asyncio.create_subprocess_exec(*ask, stdout=DEVNULL, stderr=DEVNULL)).wait() == 0


@asynccontextmanager
async def a_containerd(folder: Path, run: Path, mode: str) -> AsyncIterator[Containerd]:
    """`run` is what it sees as /run/vrampack."""
    (folder / "config.toml").write_text(CONFIG.format(folder=folder))
    command = ["sh", "-c", PRIVATE, "sh", str(run), mode, "containerd", "--config", str(folder / "config.toml")]
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec("unshare", "--mount", *command, stderr=log, stdout=log)
    made = Containerd(folder)
    try:
        async with asyncio.timeout(30):
            while not await made.answers():
                assert process.returncode is None, (folder / "log").read_text()
        yield made
    finally:
        process.terminate()
        await process.wait()


def root_of(container: HostBundleContainer) -> None:
    """What `ctr` expects of a root file system that it is handed."""
    for name in ("dev", "sys", "run", "tmp"):
        (container.root / name).mkdir()
    subprocess.run(["chmod", "755", container.root], check=True, timeout=10)
