"""`preload`: the ledger, its file and its socket as a back end of the agent."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vrampack.agent.limits.accounting import ProcessUsage, UsageAccounting, UsageTotals
from vrampack.agent.limits.cgroups import CgroupOwner, FindOwner
from vrampack.agent.limits.contract import (
    Applied,
    AppliedState,
    BackEnd,
    ContainerUsage,
    LimitTarget,
    Scope,
    Traits,
)
from vrampack.agent.limits.preload import files, peers
from vrampack.agent.limits.preload.decisions import AllocationDecisions, GetMinors
from vrampack.agent.limits.preload.errors import JournalLockedError
from vrampack.agent.limits.preload.journal import Journal
from vrampack.agent.limits.preload.rate_limit import RateLimits
from vrampack.agent.limits.preload.server import PreloadServer
from vrampack.agent.limits.preload.usage_ledger import CardPart, ProcessKey, UsageLedger
from vrampack.agent.limits.preload.wire import ONLY_CARD
from vrampack.agent.limits.workload import ResolvedContainer, Unresolved

log = logging.getLogger(__name__)

SURVIVES = "restarts and upgrades of the agent: what processes hold is in a file of the node until its next boot"
JOURNAL_PATH = Path("/run/vrampack/preload.books")
MAX_DESCRIPTORS = 65_536
"""More processes than any node has on its cards."""
JOURNAL_RETRY_SECONDS = 0.1
"""Between two tries to open a file that another agent still writes; that agent ends within its own 30 s."""


@dataclass(frozen=True, slots=True)
class PreloadPaths:
    """Paths on the node; tests use others."""

    folder: Path = files.HOST_FOLDER
    shipped: Path = files.SHIPPED_LIBRARY
    journal: Path = JOURNAL_PATH


class PreloadBackEnd(BackEnd):
    """The library in the container asks at each allocation. Cooperative: a program that bypasses libc is not limited."""

    traits = Traits(Scope.CONTAINER, "at each allocation, by the library in the container; cooperative", SURVIVES)

    def __init__(
        self,
        paths: PreloadPaths,
        *,
        resolve_container: Callable[[CgroupOwner | None], ResolvedContainer | Unresolved],
        get_minors: GetMinors,
        driver_version: Callable[[], str],
        find_owner: FindOwner,
        rate_limits: RateLimits | None = None,
    ) -> None:
        self._paths = paths
        self._resolve_container = resolve_container
        self._find_owner = find_owner
        self._rate_limits = rate_limits
        self._container_names: dict[CgroupOwner, str] = {}
        """Container names from when a process asked: the pod's status forgets a container when the next one is created."""
        self._journal: Journal | None = None
        self._server: PreloadServer | None = None
        self._ledger = UsageLedger(self._record_holding)
        self._decisions = AllocationDecisions(
            self._ledger, find_limits=self._find_limits, get_minors=get_minors, driver_version=driver_version
        )

    @property
    def accounting(self) -> UsageAccounting:
        return self

    @property
    def hook_mount(self) -> str:
        return str(self._paths.folder)

    def list_mounts(self) -> Mapping[str, str]:
        return files.list_mounts()

    async def start(self) -> None:
        """Install the files, take over the journal, then listen. Raises `OSError`."""
        _raise_descriptor_limit()
        await asyncio.to_thread(files.install_files, self._paths.shipped, self._paths.folder)
        self._journal = await self._open_journal()
        held: dict[tuple[ProcessKey, CgroupOwner], dict[CardPart, int]] = {}
        for entry in self._journal.entries:
            held.setdefault((entry.process, entry.owner), {})[entry.uuid, ONLY_CARD] = entry.held_bytes
        for (process, owner), parts in held.items():
            self._ledger.set_holdings(process, owner, parts)
        self._server = PreloadServer(
            self._paths.folder / files.SOCKET_NAME,
            self._ledger,
            self._decisions,
            find_owner=self._find_owner,
            rate_limits=self._rate_limits,
        )
        self._server.start(dict(held.keys()))
        log.info("preload server started socket=%s known=%s", self._paths.folder / files.SOCKET_NAME, len(held))

    def stop(self) -> None:
        """Release the socket and the journal for the next agent."""
        if self._server is not None:
            self._server.stop()
        if self._journal is not None:
            self._journal.close()
        self._server = self._journal = None

    async def reconcile(self) -> str:
        return self._server.problem if self._server is not None else ""

    async def apply(self, scope: Scope, target: LimitTarget, limits: Mapping[str, int]) -> Applied:  # noqa: ARG002
        """Nothing to do: the record is looked up at each question."""
        return Applied(AppliedState.DEFERRED, "the library in the container asks at each allocation; cooperative")

    async def release(self, target: LimitTarget) -> None:
        """Nothing to do: the pod is shown until its processes have ended."""
        self.forget_pod(target.pod_uid)

    def forget_pod(self, pod_uid: str) -> None:
        """The pod is gone."""
        self._ledger.forget_pod(pod_uid)
        for owner in [owner for owner in self._container_names if owner.pod_uid == pod_uid]:
            del self._container_names[owner]

    async def measure_usage(self) -> tuple[ContainerUsage, ...]:
        tallies = sorted(
            self._ledger.list_usage_totals().items(), key=lambda item: (item[0][0].pod_uid, item[0][0].container_id)
        )
        return tuple(
            ContainerUsage(owner.pod_uid, owner.container_id, uuid, tally.used_bytes)
            for (owner, uuid), tally in tallies
        )

    def list_usage_totals(self) -> Mapping[tuple[str, str, str], UsageTotals]:
        """Totals by pod uid, container name and card; successive containers of one name count as one."""
        found: dict[tuple[str, str, str], UsageTotals] = {}
        for (owner, uuid), tally in self._ledger.list_usage_totals().items():
            key = owner.pod_uid, self._container_names.get(owner, ""), uuid
            before = found.get(key, UsageTotals(0, 0, 0))
            found[key] = UsageTotals(
                before.used_bytes + tally.used_bytes,
                max(before.peak_bytes, tally.peak_bytes),
                before.refused + tally.refused,
            )
        return found

    def count_processes(self) -> Mapping[tuple[str, str], int]:
        """Processes by pod uid and container name; those of unknown pods are left out."""
        found: Counter[tuple[str, str]] = Counter()
        for owner, count in (self._server.count_connections() if self._server is not None else Counter()).items():
            if owner is not None and owner in self._container_names:
                found[owner.pod_uid, self._container_names[owner]] += count
        return found

    @property
    def process_count(self) -> int:
        """The number of connected processes, of any container."""
        return sum(self._server.count_connections().values()) if self._server is not None else 0

    def list_processes(self) -> tuple[ProcessUsage, ...]:
        """Who holds what, process by process."""
        return tuple(
            ProcessUsage(
                row.process.pid,
                row.owner.pod_uid,
                row.owner.container_id,
                self._container_names.get(row.owner, ""),
                row.uuid,
                row.held_bytes,
                row.refused,
            )
            for row in self._ledger.list_holdings()
        )

    def _record_holding(self, process: ProcessKey, owner: CgroupOwner, uuid: str, held_bytes: int) -> bool:
        return self._journal is not None and self._journal.write_holding(process, owner, uuid, held_bytes)

    def _find_limits(self, owner: CgroupOwner | None) -> Mapping[str, int] | Unresolved:
        named = self._resolve_container(owner)
        if isinstance(named, Unresolved) or owner is None:
            return named if isinstance(named, Unresolved) else Unresolved.UNKNOWN_OWNER
        self._container_names[owner] = named.container
        return {uuid: mib << 20 for uuid, mib in named.limits_mib.items()}

    async def _open_journal(self) -> Journal:
        """Open the journal as soon as the previous agent has released it."""
        self._paths.journal.parent.mkdir(parents=True, exist_ok=True)
        is_said = False
        while True:
            try:
                return Journal(self._paths.journal, boot_id=peers.read_boot_id())
            except JournalLockedError as error:
                if not is_said:
                    log.warning("waiting for the journal reason=%s", error)
                is_said = True
                await asyncio.sleep(JOURNAL_RETRY_SECONDS)


def _raise_descriptor_limit() -> None:
    """Each process needs a descriptor, and the usual soft limit of 1,024 suffices for a few containers only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(MAX_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
