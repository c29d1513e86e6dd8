"""`kmod`: the kernel module as a back end of the agent.

    PreStart  --apply(pod)-------> add UID cgroup=..            v2; the sum of the pod's containers
    the hook  --apply(container)-> add UID.NAME cgroup=..       v2; for pods of several, the nearest cgroup wins
                                   add UID.NAME pidns=..        v1
    look, every few seconds: what the agent wants <-> what inst_ctl shows
                             missing (module loaded anew, agent restarted) -> add; another limit -> memsize
                             nobody's any more, and no file open -> remove

Nothing is remembered but for what people are shown: who is limited to what is in the module, and who ought to be is in the
pods' records or the host's files. So a restart of either side is a look like any other.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from vrampack.agent.limits.books import ProcessUse, Tally
from vrampack.agent.limits.cgroups import Cgroups
from vrampack.agent.limits.contract import Applied, Identity, Scope, Standing, Traits, Usage
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.kmod.errors import ModuleError
from vrampack.agent.limits.kmod.identity import PROC, cgroup_id, pid_namespace
from vrampack.agent.limits.kmod.nodes import Instance, Nodes, State, Whose
from vrampack.agent.limits.kmod.presence import amiss

log = logging.getLogger(__name__)

WORD = "kmod"
SURVIVES = "restarts and upgrades of the agent; a module that is loaded anew is told anew by the agent"
MODULES_OWN, MOST_INSTANCES = 16, 25
"""Of one card: what the module begins with, and the most that it takes. A pod counts as one, of several containers as more."""
_OURS = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")
"""A pod's uid or a tenant's key; other names are those of people, and left alone."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Somebody of whom the module ought to have an instance."""

    uid: str
    """The pod's, or the key of a host's container."""
    limits_mib: Mapping[str, int]
    """By uuid of the card."""
    folder: Callable[[], Path | None]
    """Its cgroup, where it has one yet."""
    container: str = ""
    """Empty: the whole pod."""
    shown: str = ""
    """The container that its figures are shown of: a pod's only one, too."""
    weight: int = 1
    is_refinement: bool = False
    """Made by the hook before the first process, or not at all: a late one would give its processes a second budget."""

    @property
    def name(self) -> str:
        return name_of(self.uid, self.container)


def name_of(uid: str, container: str) -> str:
    """Of an instance."""
    return f"{uid}.{container}" if container else uid


@dataclass(frozen=True, slots=True)
class Seen:
    """What the last look showed."""

    state: State | None = None
    instances: tuple[tuple[Instance, Wanted], ...] = ()


Minors: TypeAlias = Callable[[], Mapping[str, int]]


class Kmod:
    """The driver's control file is limited below every library: static programs too."""

    word = WORD
    traits = Traits(Scope.CONTAINER, "from the first process on, by the kernel module", SURVIVES)

    def __init__(  # noqa: PLR0913 - what it needs, each named
        self,
        nodes: Nodes,
        cgroups: Cgroups,
        *,
        wanted: Callable[[], Iterable[Wanted]],
        is_gone: Callable[[str], bool],
        minors: Minors,
        driver_version: Callable[[], str],
        names: Callable[[Identity], str] = lambda identity: name_of(identity.pod_uid, identity.container),
        proc: Path = PROC,
    ) -> None:
        """`is_gone(uid)`: whether no process of that pod or tenant can be left. `names`: of the instance of a container."""
        self._nodes = nodes
        self._cgroups = cgroups
        self._wanted = wanted
        self._is_gone = is_gone
        self._minors = minors
        self._driver_version = driver_version
        self._names = names
        self._proc = proc
        self._lock = asyncio.Lock()
        self._cards: Mapping[str, int] = {}
        """The minors as they were when the last work began: it is done in a thread."""
        self._seen = Seen()
        self._failures: dict[str, str] = {}
        """By name, as they were said."""

    @property
    def state(self) -> State | None:
        """The module as the last look showed it."""
        return self._seen.state

    async def look(self) -> str:
        """Compare, and set right what differs. Why nobody new can be held now; empty when all is well."""
        async with self._lock:
            return await asyncio.to_thread(self._look, self._begin())

    async def apply(self, scope: Scope, identity: Identity, limits: Mapping[str, int]) -> Applied:
        if scope is Scope.POD and not self._is_unified:
            return Applied(Standing.DEFERRED, "in force at container start, by the createRuntime hook")
        if not limits:
            return Applied(Standing.DEFERRED, "it has no limit")
        async with self._lock:
            return await asyncio.to_thread(self._apply, scope, identity, limits, self._begin())

    async def release(self, identity: Identity) -> None:
        """No new file is bound to it; those that are open elsewhere stay limited."""
        async with self._lock:
            await asyncio.to_thread(self._remove, self._names(identity))

    async def usage(self) -> tuple[Usage, ...]:
        return tuple(
            Usage(uid, container, uuid, tally.used_bytes) for (uid, container, uuid), tally in self.tallies().items()
        )

    def tallies(self) -> Mapping[tuple[str, str, str], Tally]:
        """Of pods with several containers those that the hook made no instance of count together, without a name."""
        found: dict[tuple[str, str, str], Tally] = {}
        for instance, whose in self._seen.instances:
            for minor, card in sorted(instance.cards.items()):
                if whose.shown or card.peak_bytes or card.refused:
                    key = whose.uid, whose.shown, self._uuid(minor, whose)
                    found[key] = _sum(found.get(key), Tally(card.used_bytes, card.peak_bytes, card.refused))
        return found

    def connected(self) -> Mapping[tuple[str, str], int]:
        """Processes that hold something."""
        found: Counter[tuple[str, str]] = Counter()
        for instance, whose in self._seen.instances:
            found[whose.uid, whose.shown] += len({each.pid for each in instance.processes})
        return +found

    @property
    def connections(self) -> int:
        return sum(self.connected().values())

    def processes(self) -> tuple[ProcessUse, ...]:
        return tuple(
            ProcessUse(each.pid, whose.uid, "", whose.shown, self._uuid(each.minor, whose), each.used_bytes, 0)
            for instance, whose in self._seen.instances
            for each in instance.processes
        )

    @property
    def _is_unified(self) -> bool:
        return self._cgroups.version == 2  # noqa: PLR2004

    def _begin(self) -> Mapping[str, Wanted]:
        """What a thread may not look at: the agent's own, which changes."""
        self._cards = dict(self._minors())
        return {each.name: each for each in self._wanted()}

    def _make_room(self) -> None:
        """Folders for all cards, and as many instances as a card can have, where nobody chose another number."""
        minors = sorted({*self._cards.values()})
        if minors:
            self._nodes.cards(minors)
        for minor in minors:
            if self._nodes.most_instances(minor) == MODULES_OWN:
                self._nodes.allow_instances(minor, MOST_INSTANCES)

    def _look(self, wanted: Mapping[str, Wanted]) -> str:
        try:
            state = self._nodes.state()
            if state is None:
                self._seen = Seen()
                return amiss(None, "")
            problem = amiss(state, self._driver_version())
            self._settle(wanted, may_add=not problem)
            before = {instance.name: whose for instance, whose in self._seen.instances}
            self._seen = Seen(
                self._nodes.state(),
                tuple((each, _whose(each.name, wanted, before)) for each in self._nodes.instances()),
            )
        except ModuleError as error:
            return str(error)
        return problem

    def _settle(self, wanted: Mapping[str, Wanted], *, may_add: bool) -> None:
        listed = {each.name: each for each in self._nodes.instances() if not each.is_removed}
        uids = {name.partition(".")[0] for name in listed}
        if may_add and (self._seen.state is None or (wanted and not listed)):
            self._make_room()
        for name, each in wanted.items():
            if name in listed:
                self._try(name, partial(self._resize, listed[name], each))
            elif may_add and not (each.is_refinement and each.uid in uids):
                self._try(name, partial(self._add_again, each))
        for name in listed.keys() - wanted.keys():
            uid = name.partition(".")[0]
            if _OURS.fullmatch(uid) and not listed[name].files and self._is_gone(uid):
                self._try(name, partial(self._remove, name))

    def _try(self, name: str, do: Callable[[], None]) -> None:
        """One that fails keeps no other from being held, and is said once."""
        try:
            do()
        except LimitError as error:
            if self._failures.get(name) != str(error):
                log.error("not held instance=%s why=%s", name, error)  # noqa: TRY400 - said, not traced
            self._failures[name] = str(error)
        else:
            self._failures.pop(name, None)

    def _resize(self, listed: Instance, each: Wanted) -> None:
        for minor, size_bytes in self._bytes(each.uid, each.limits_mib).items():
            if minor in listed.cards and listed.cards[minor].limit_bytes != size_bytes:
                self._nodes.resize(minor, listed.name, size_bytes)
                log.info("resized instance=%s card=%s bytes=%s", listed.name, minor, size_bytes)

    def _add_again(self, each: Wanted) -> None:
        """Somebody who runs and of whom the module knows nothing."""
        folder = each.folder()
        if folder is None or not each.limits_mib:
            return
        self._nodes.add(each.name, self._whose(folder), self._bytes(each.uid, each.limits_mib), weight=each.weight)
        log.info("goes on instance=%s mib=%s", each.name, ",".join(map(str, each.limits_mib.values())))

    def _apply(
        self, scope: Scope, identity: Identity, limits: Mapping[str, int], wanted: Mapping[str, Wanted]
    ) -> Applied:
        problem = amiss(self._nodes.state(), self._driver_version())
        if problem:
            raise ModuleError(problem)
        folder = identity.cgroup or (self._cgroups.pod(identity.pod_uid) if scope is Scope.POD else None)
        if folder is None:
            raise LimitError(f"{identity}: its cgroup is not there: has kubelet made one for each pod (cgroupsPerQOS)?")
        if scope is Scope.CONTAINER and self._is_held_as_pod(identity, wanted):
            return Applied(Standing.IN_FORCE, "the kernel module, for its pod: it is the only container with a card")
        whose = self._whose(folder, identity.pid)
        self._nodes.add(self._names(identity), whose, self._bytes(str(identity), limits), weight=identity.weight)
        return Applied(Standing.IN_FORCE, "the kernel module")

    def _is_held_as_pod(self, identity: Identity, wanted: Mapping[str, Wanted]) -> bool:
        """A second instance would hold nothing more, and a card has only so many."""
        pod = wanted.get(identity.pod_uid)
        if pod is None or pod.container or pod.shown != identity.container or not self._is_unified:
            return False
        folder = self._cgroups.pod(identity.pod_uid)
        if folder is None:
            return False
        number = cgroup_id(folder).number
        limits = self._bytes(pod.uid, pod.limits_mib)
        return any(
            each.name == pod.uid and each.cgroup == number and each.limits == limits and not each.is_removed
            for each in self._nodes.instances()
        )

    def _remove(self, name: str) -> None:
        if any(each.name == name and not each.is_removed for each in self._nodes.instances()):
            self._nodes.remove(name)

    def _whose(self, folder: Path, pid: int = 0) -> Whose:
        return cgroup_id(folder) if self._is_unified else pid_namespace(folder, pid, self._proc)

    def _bytes(self, who: str, limits: Mapping[str, int]) -> dict[int, int]:
        """By minor."""
        found: dict[int, int] = {}
        for uuid, mib in limits.items():
            minor = self._cards.get(uuid)
            if minor is None:
                raise LimitError(f"{who}: the driver does not show card {uuid}")
            if minor in found:
                raise LimitError(f"{who}: MIG instances of one GPU have one number for the module: give it one of them")
            found[minor] = mib << 20
        return found

    def _uuid(self, minor: int, whose: Wanted) -> str:
        """The card that is meant; its number where nobody knows."""
        meant = [uuid for uuid in (*whose.limits_mib, *sorted(self._cards)) if self._cards.get(uuid) == minor]
        return meant[0] if meant else str(minor)


def _sum(before: Tally | None, more: Tally) -> Tally:
    if before is None:
        return more
    return Tally(
        before.used_bytes + more.used_bytes, max(before.peak_bytes, more.peak_bytes), before.refused + more.refused
    )


def _whose(name: str, *known: Mapping[str, Wanted]) -> Wanted:
    """As it is wanted now, or was when somebody wanted it: files may outlive their pod."""
    uid, _, container = name.partition(".")
    found = (each[name] for each in known if name in each)
    return next(found, Wanted(uid, {}, lambda: None, container, container))
