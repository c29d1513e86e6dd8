"""`preload`: the ledger, its file and its socket as a back end of the agent."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vrampack.agent.limits.books import ProcessUse, Tally
from vrampack.agent.limits.cgroups import Owner
from vrampack.agent.limits.contract import Applied, Identity, Scope, Standing, Traits, Usage
from vrampack.agent.limits.preload import files, peers
from vrampack.agent.limits.preload.answers import Answers, Minors, Unnamed
from vrampack.agent.limits.preload.errors import JournalTakenError
from vrampack.agent.limits.preload.journal import Journal
from vrampack.agent.limits.preload.ledger import Ledger, Part, Process
from vrampack.agent.limits.preload.server import Pace, PreloadServer
from vrampack.agent.limits.preload.wire import ONLY_CARD

log = logging.getLogger(__name__)

WORD = "preload"
SURVIVES = "restarts and upgrades of the agent: what processes hold is in a file of the node until its next boot"
BOOKS = Path("/run/vrampack/preload.books")
DESCRIPTORS = 65_536
"""More processes than any node has on its cards."""
TAKEN_SECONDS = 0.1
"""Between two tries at a file that another agent still writes; it ends within its own 30 s."""


@dataclass(frozen=True, slots=True)
class Named:
    """A container of which limits can be said."""

    name: str
    limits_mib: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Paths:
    """Where things are on the node; a test has them elsewhere."""

    folder: Path = files.FOLDER
    shipped: Path = files.SHIPPED
    books: Path = BOOKS


class Preload:
    """The library in the container asks at each allocation; a program that goes past libc is not held. Cooperative."""

    word = WORD
    traits = Traits(Scope.CONTAINER, "at each allocation, by the library in the container; cooperative", SURVIVES)

    def __init__(
        self,
        paths: Paths,
        *,
        name_of: Callable[[Owner | None], Named | Unnamed],
        minors: Minors,
        driver_version: Callable[[], str],
        owner_of: peers.OwnerOf,
        pace: Pace | None = None,
    ) -> None:
        self._paths = paths
        self._name_of = name_of
        self._owner_of = owner_of
        self._pace = pace
        self._names: dict[Owner, str] = {}
        """As they were when somebody asked: the status forgets a container when the next one is made."""
        self._journal: Journal | None = None
        self._server: PreloadServer | None = None
        self._ledger = Ledger(self._note)
        self._answers = Answers(self._ledger, whose=self._whose, minors=minors, driver_version=driver_version)

    async def start(self) -> None:
        """Put the files in place, take the books over, listen. Raises `OSError`."""
        _allow_connections()
        await asyncio.to_thread(files.install, self._paths.shipped, self._paths.folder)
        self._journal = await self._taken()
        held: dict[tuple[Process, Owner], dict[Part, int]] = {}
        for entry in self._journal.entries:
            held.setdefault((entry.process, entry.owner), {})[entry.uuid, ONLY_CARD] = entry.held_bytes
        for (process, owner), parts in held.items():
            self._ledger.hello(process, owner, parts)
        self._server = PreloadServer(
            self._paths.folder / files.SOCKET, self._ledger, self._answers, owner_of=self._owner_of, pace=self._pace
        )
        self._server.start([process for process, _ in held])
        log.info("the library is answered socket=%s known=%s", self._paths.folder / files.SOCKET, len(held))

    def stop(self) -> None:
        """Let the next agent have socket and books."""
        if self._server is not None:
            self._server.stop()
        if self._journal is not None:
            self._journal.close()
        self._server = self._journal = None

    async def apply(self, scope: Scope, identity: Identity, limits: Mapping[str, int]) -> Applied:  # noqa: ARG002
        """The record is looked up at each question, so there is nothing to put anywhere."""
        return Applied(Standing.DEFERRED, "the library in the container asks at each allocation; cooperative")

    async def release(self, identity: Identity) -> None:
        """Nothing more is said of this pod once its processes have ended."""
        self.forget(identity.pod_uid)

    def forget(self, pod_uid: str) -> None:
        """The pod is gone."""
        self._ledger.forget(pod_uid)
        for owner in [owner for owner in self._names if owner.pod_uid == pod_uid]:
            del self._names[owner]

    async def usage(self) -> tuple[Usage, ...]:
        tallies = sorted(self._ledger.tallies().items(), key=lambda item: (item[0][0].pod_uid, item[0][0].container_id))
        return tuple(
            Usage(owner.pod_uid, owner.container_id, uuid, tally.used_bytes) for (owner, uuid), tally in tallies
        )

    def tallies(self) -> Mapping[tuple[str, str, str], Tally]:
        """By pod uid, container name and card; several containers of one name, one after the other, are one."""
        found: dict[tuple[str, str, str], Tally] = {}
        for (owner, uuid), tally in self._ledger.tallies().items():
            key = owner.pod_uid, self._names.get(owner, ""), uuid
            before = found.get(key, Tally(0, 0, 0))
            found[key] = Tally(
                before.used_bytes + tally.used_bytes,
                max(before.peak_bytes, tally.peak_bytes),
                before.refused + tally.refused,
            )
        return found

    def connected(self) -> Mapping[tuple[str, str], int]:
        """Processes by pod uid and container name; those of nobody's pods are left out."""
        found: Counter[tuple[str, str]] = Counter()
        for owner, count in (self._server.connected() if self._server is not None else Counter()).items():
            if owner is not None and owner in self._names:
                found[owner.pod_uid, self._names[owner]] += count
        return found

    @property
    def connections(self) -> int:
        """Processes that are connected now, whoever's they are."""
        return sum(self._server.connected().values()) if self._server is not None else 0

    def processes(self) -> tuple[ProcessUse, ...]:
        """Who holds what, process by process."""
        return tuple(
            ProcessUse(
                row.process.pid,
                row.owner.pod_uid,
                row.owner.container_id,
                self._names.get(row.owner, ""),
                row.uuid,
                row.held_bytes,
                row.refused,
            )
            for row in self._ledger.rows()
        )

    def _note(self, process: Process, owner: Owner, uuid: str, held_bytes: int) -> bool:
        return self._journal is not None and self._journal.write(process, owner, uuid, held_bytes)

    def _whose(self, owner: Owner | None) -> Mapping[str, int] | Unnamed:
        named = self._name_of(owner)
        if isinstance(named, Unnamed) or owner is None:
            return named if isinstance(named, Unnamed) else Unnamed.STRANGER
        self._names[owner] = named.name
        return {uuid: mib << 20 for uuid, mib in named.limits_mib.items()}

    async def _taken(self) -> Journal:
        """The books, as soon as the agent before this one has let go of them."""
        self._paths.books.parent.mkdir(parents=True, exist_ok=True)
        is_said = False
        while True:
            try:
                return Journal(self._paths.books, boot_id=peers.boot_id())
            except JournalTakenError as error:
                if not is_said:
                    log.warning("waiting for the books of the agent before this one why=%s", error)
                is_said = True
                await asyncio.sleep(TAKEN_SECONDS)


def _allow_connections() -> None:
    """A descriptor for each process: the usual soft limit of 1,024 is a few containers' worth."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
