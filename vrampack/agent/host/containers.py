"""The containers of a host without Kubernetes that have a limit: what each may use, and which have ended.

A container is identified by its cgroup: the runtime names it at the start, and /proc names it when one of its processes asks. It
has ended when no process is left in that cgroup. Each has a small file in a folder below /run, written before it may start and
read by the next agent: a granted limit stays, whatever the container, its bundle or the cards say by then. A reboot empties
/run, and ends cgroups too.

The limits on one card add up to at most its memory: more is refused, with the list of the holders.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath

import msgspec

from vrampack.agent.limits.cgroups import PROC, CgroupOwner, CgroupTree, has_processes, list_process_cgroups
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.workload import DesiredLimit, ResolvedContainer, Unresolved
from vrampack.cards.node import CardFacts

log = logging.getLogger(__name__)

SUFFIX = ".json"
KEY_DIGITS = 32


class HostContainer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One container, as it is written to its file."""

    v: int
    id: str
    hierarchy: str
    """`unified`, or the name of the v1 hierarchy in which `cgroup` is a path."""
    cgroup: str
    limits: dict[str, int]
    """MiB by uuid of the card."""
    weight: int = 1

    @property
    def key(self) -> str:
        """Unique for each cgroup. The id is not: each runtime has its own namespace of ids."""
        return hashlib.sha256(f"{self.hierarchy}:{self.cgroup}".encode()).hexdigest()[:KEY_DIGITS]

    @property
    def owner(self) -> CgroupOwner:
        """The container as the back ends know it."""
        return CgroupOwner(self.key, self.id[:64])

    def __str__(self) -> str:
        return self.id[:12]


def make_host_container(
    container_id: str, hierarchy: str, cgroup: str, limits: Mapping[str, int], *, weight: int | None = None
) -> HostContainer:
    return HostContainer(1, container_id, hierarchy, cgroup, dict(limits), weight or 1)


class HostContainers:
    """All of one host, and the back ends' `Workload` of it. `folder` has their files."""

    def __init__(self, folder: Path, cgroups: CgroupTree, *, may_overcommit: bool = False) -> None:
        self._folder = folder
        self._cgroups = cgroups
        self._may_overcommit = may_overcommit
        self._containers: dict[str, HostContainer] = {}

    def restore_running(self) -> tuple[HostContainer, ...]:
        """The containers of the last agent that still run. A file that cannot be read is logged and dropped."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            try:
                found = msgspec.json.decode(path.read_bytes(), type=HostContainer)
            except msgspec.DecodeError as error:
                log.warning("container file dropped path=%s reason=%s", path, error)
                path.unlink()
                continue
            self._containers[found.key] = found
        self.remove_ended()
        return self.list_containers()

    def list_containers(self) -> tuple[HostContainer, ...]:
        """By id."""
        return tuple(sorted(self._containers.values(), key=lambda each: (each.id, each.key)))

    def find_container(self, owner: CgroupOwner | None) -> HostContainer | None:
        return None if owner is None else self._containers.get(owner.pod_uid)

    def add_container(self, container: HostContainer, cards: Iterable[CardFacts]) -> None:
        """Count it and write its file.

        Raises `LimitError` when another container has its cgroup, a card has too little left, or the file cannot be written.
        """
        present = self._containers.get(container.key)
        if present is not None and present.id != container.id:
            text = (
                f"its cgroup {container.cgroup} is that of container {present}: give each container a cgroup of its own"
            )
            raise LimitError(text)
        for card in cards:
            self._check_capacity(container, card)
        path = self._path(container)
        making = path.with_suffix(".new")
        try:
            making.write_bytes(msgspec.json.encode(container))
            making.replace(path)
        except OSError as error:
            raise LimitError(f"its limit cannot be written into {self._folder}: {error.strerror or error}") from error
        self._containers[container.key] = container

    def remove_container(self, container: HostContainer) -> None:
        self._containers.pop(container.key, None)
        try:
            self._path(container).unlink(missing_ok=True)
        except OSError as error:  # the next agent finds that it has ended
            log.warning("container file not deleted container=%s error=%s", container, error)

    def remove_ended(self) -> tuple[HostContainer, ...]:
        """Forget the containers whose cgroup has no process left, and return them."""
        gone = tuple(each for each in self.list_containers() if not self._is_alive(each))
        for each in gone:
            self.remove_container(each)
        return gone

    def list_desired(self) -> Iterator[DesiredLimit]:
        """Every container has a limit."""
        for each in self.list_containers():
            reported = each.owner.container_id
            folder = partial(self._find_cgroup, each)
            yield DesiredLimit(each.key, each.limits, folder, reported_container=reported, weight=each.weight)

    def get_limits_mib(self, pod_uid: str, _container: str) -> Mapping[str, int] | None:
        found = self._containers.get(pod_uid)
        return None if found is None else found.limits

    def get_container_name(self, pod_uid: str, _container_id: str) -> str | None:
        found = self._containers.get(pod_uid)
        return None if found is None else found.owner.container_id

    def resolve_container(self, owner: CgroupOwner | None) -> ResolvedContainer | Unresolved:
        found = self.find_container(owner)
        return Unresolved.UNKNOWN_OWNER if found is None else ResolvedContainer(found.owner.container_id, found.limits)

    def resolve_leftover(self, owner: CgroupOwner | None) -> ResolvedContainer | Unresolved:
        """A leftover keeps its limit."""
        return self.resolve_container(owner)

    def is_gone(self, pod_uid: str) -> bool:
        return pod_uid not in self._containers

    def sum_limits_mib(self, uuid: str) -> int:
        return sum(each.limits.get(uuid, 0) for each in self._containers.values())

    def find_process_owner(self, pid: int, proc: Path = PROC) -> CgroupOwner | None:
        """The container in whose cgroup, or below it, the process is; None if there is none, or the process has ended.

        Called by threads, too.
        """
        cgroups = {(each.hierarchy, each.cgroup): each for each in self.list_containers()}
        found = (cgroups[place] for place in _list_ancestors(list_process_cgroups(pid, proc)) if place in cgroups)
        return next((each.owner for each in found), None)

    def _check_capacity(self, container: HostContainer, card: CardFacts) -> None:
        """Raises `LimitError` unless the card has enough left; the error names the largest holder first."""
        uuid = card.uuid or ""
        asked = container.limits.get(uuid, 0)
        others = [each for each in self.list_containers() if each.key != container.key and uuid in each.limits]
        left = card.memory_mib - sum(each.limits[uuid] for each in others)
        if self._may_overcommit or asked <= left or not asked:
            return
        holders = ", ".join(f"{each} ({each.limits[uuid]})" for each in sorted(others, key=lambda of: -of.limits[uuid]))
        raise LimitError(
            f"card {card.index} ({uuid}) has {max(0, left)} of its {card.memory_mib} MiB left and {asked} are asked; "
            f"held by {holders or 'no container'}: stop a container, ask for fewer units, or set standalone.overcommit: allow"
        )

    def _is_alive(self, container: HostContainer) -> bool:
        folder = self._find_cgroup(container)
        return folder is not None and has_processes(folder)

    def _find_cgroup(self, container: HostContainer) -> Path | None:
        try:
            return self._cgroups.get_folder(container.hierarchy, container.cgroup)
        except LimitError:
            return None

    def _path(self, container: HostContainer) -> Path:
        return self._folder / f"{container.key}{SUFFIX}"


def _list_ancestors(cgroups: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Hierarchy and path of each cgroup in /proc/PID/cgroup, followed by its parents up to the root."""
    for controllers, path in cgroups:
        for name in controllers.split(","):
            hierarchy = name.removeprefix("name=") or "unified"
            for folder in (PurePosixPath(path), *PurePosixPath(path).parents):
                yield hierarchy, str(folder)
