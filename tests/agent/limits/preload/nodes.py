"""A node with one back end on it: limits that a test changes, containers that it gives processes to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.agent.limits.preload.clients import Program
from vrampack.agent.limits.cgroups import Owner
from vrampack.agent.limits.preload.answers import Unnamed
from vrampack.agent.limits.preload.backend import Named, Paths, Preload
from vrampack.agent.limits.preload.server import Pace

APP = Owner("uid-app", "1a" * 32)
OTHER = Owner("uid-other", "2b" * 32)
DRIVER = "580.95.05"
MIB = 1 << 20


@dataclass
class Node:
    folder: Path
    names: dict[Owner, Named | Unnamed] = field(
        default_factory=lambda: {APP: Named("main", {"GPU-0": 4301}), OTHER: Named("main", {"GPU-0": 4301})}
    )
    owners: dict[int, Owner | None] = field(default_factory=dict)
    """Of processes that are not in the usual container."""
    usual: Owner | None = APP
    minors: dict[str, int] = field(default_factory=lambda: {"GPU-0": 0, "GPU-1": 1})
    pace: Pace = field(default_factory=Pace)
    library: bytes = b"a library"

    @property
    def path(self) -> Path:
        return self.folder / "preload" / "agent.sock"

    @property
    def books(self) -> Path:
        return self.folder / "run" / "preload.books"

    def back_end(self) -> Preload:
        shipped = self.folder / "libvrampack.so"
        shipped.write_bytes(self.library)
        return Preload(
            Paths(self.folder / "preload", shipped, self.books),
            name_of=lambda owner: Unnamed.STRANGER if owner is None else self.names.get(owner, Unnamed.STRANGER),
            minors=lambda: self.minors,
            driver_version=lambda: DRIVER,
            owner_of=lambda pid: self.owners.get(pid, self.usual),
            pace=self.pace,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Preload]:
        back_end = self.back_end()
        await back_end.start()
        try:
            yield back_end
        finally:
            back_end.stop()

    @asynccontextmanager
    async def program(self, owner: Owner | None = APP) -> AsyncIterator[Program]:
        """A process of that container, killed at the end."""
        program = await Program.started()
        self.owners[program.pid] = owner
        try:
            yield program
        finally:
            await program.kill()


def used_mib(back_end: Preload, owner: Owner = APP, uuid: str = "GPU-0") -> float:
    return back_end._ledger.used_bytes(owner, uuid) / MIB


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for what the agent does in a later turn of its loop."""
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - the books have no bell
            await asyncio.sleep(0.002)
