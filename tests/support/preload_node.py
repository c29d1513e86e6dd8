"""A node with one back end: limits that a test changes, and containers in which it starts processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.preload_clients import PreloadClientProcess
from vrampack.agent.limits.cgroups import CgroupOwner
from vrampack.agent.limits.preload.backend import PreloadBackEnd, PreloadPaths
from vrampack.agent.limits.preload.rate_limit import RateLimits
from vrampack.agent.limits.workload import ResolvedContainer, Unresolved

APP = CgroupOwner("uid-app", "1a" * 32)
OTHER = CgroupOwner("uid-other", "2b" * 32)
DRIVER = "580.95.05"
MIB = 1 << 20


@dataclass
class PreloadNode:
    folder: Path
    names: dict[CgroupOwner, ResolvedContainer | Unresolved] = field(
        default_factory=lambda: {
            APP: ResolvedContainer("main", {"GPU-0": 4301}),
            OTHER: ResolvedContainer("main", {"GPU-0": 4301}),
        }
    )
    owners: dict[int, CgroupOwner | None] = field(default_factory=dict)
    """Of processes that are not in the usual container."""
    usual: CgroupOwner | None = APP
    minors: dict[str, int] = field(default_factory=lambda: {"GPU-0": 0, "GPU-1": 1})
    pace: RateLimits = field(default_factory=RateLimits)
    library: bytes = b"a library"
    driver: str = DRIVER

    @property
    def path(self) -> Path:
        return self.folder / "preload" / "agent.sock"

    @property
    def books(self) -> Path:
        return self.folder / "run" / "preload.books"

    def back_end(self) -> PreloadBackEnd:
        shipped = self.folder / "libvrampack.so"
        shipped.write_bytes(self.library)
        return PreloadBackEnd(
            PreloadPaths(self.folder / "preload", shipped, self.books),
            resolve_container=lambda owner: (
                Unresolved.UNKNOWN_OWNER if owner is None else self.names.get(owner, Unresolved.UNKNOWN_OWNER)
            ),
            get_minors=lambda: self.minors,
            driver_version=lambda: self.driver,
            find_owner=lambda pid: self.owners.get(pid, self.usual),
            rate_limits=self.pace,
        )

    @asynccontextmanager
    async def run_back_end(self) -> AsyncIterator[PreloadBackEnd]:
        back_end = self.back_end()
        await back_end.start()
        try:
            yield back_end
        finally:
            back_end.stop()

    @asynccontextmanager
    async def start_client(self, owner: CgroupOwner | None = APP) -> AsyncIterator[PreloadClientProcess]:
        """A process of that container, killed at the end."""
        program = await PreloadClientProcess.started()
        self.owners[program.pid] = owner
        try:
            yield program
        finally:
            await program.kill()


def read_used_mib(back_end: PreloadBackEnd, owner: CgroupOwner = APP, uuid: str = "GPU-0") -> float:
    return back_end._ledger.get_used_bytes(owner, uuid) / MIB


async def wait_until_true(is_so: Callable[[], bool]) -> None:
    """Wait for what the agent does in a later turn of its loop."""
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - the ledger has no event to wait for
            await asyncio.sleep(0.002)
