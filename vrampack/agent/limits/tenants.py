"""The containers of a host without Kubernetes that have a limit: who they are, what each may use, who is gone.

A tenant is known by its cgroup: by the runtime's word when it starts, and by /proc when one of its processes asks. It is
gone when no process is left in that cgroup. Each has a small file in a folder below /run, written before it may start and
read again by the next agent: what was given stands, whatever the container, its bundle or the cards say by then. /run is
emptied by a reboot, and so are cgroups.

Limits of one card add up to its memory at most: more is refused, naming who holds what.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

import msgspec

from vrampack.agent.limits.cgroups import Cgroups, Owner
from vrampack.agent.limits.errors import LimitError
from vrampack.cards.node import CardFacts

log = logging.getLogger(__name__)

FOLDER = Path("/run/vrampack/standalone")
SUFFIX = ".json"
KEY_DIGITS = 32


class Tenant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One container, as its file says it too."""

    v: int
    id: str
    hierarchy: str
    """`unified`, or a v1 hierarchy's name: of which `cgroup` is a path."""
    cgroup: str
    limits: dict[str, int]
    """MiB by uuid of the card."""
    weight: int = 1

    @property
    def key(self) -> str:
        """One per cgroup. Runtimes have namespaces of their own: two may have containers of one id."""
        return hashlib.sha256(f"{self.hierarchy}:{self.cgroup}".encode()).hexdigest()[:KEY_DIGITS]

    @property
    def owner(self) -> Owner:
        """As the back ends know containers."""
        return Owner(self.key, self.id[:64])

    def __str__(self) -> str:
        return self.id[:12]


def tenant(
    container_id: str, hierarchy: str, cgroup: str, limits: Mapping[str, int], *, weight: int | None = None
) -> Tenant:
    return Tenant(1, container_id, hierarchy, cgroup, dict(limits), weight or 1)


class Tenants:
    """All of one host. `folder` has their files."""

    def __init__(self, folder: Path, cgroups: Cgroups, *, may_overcommit: bool = False) -> None:
        self._folder = folder
        self._cgroups = cgroups
        self._may_overcommit = may_overcommit
        self._tenants: dict[str, Tenant] = {}

    def restore(self) -> tuple[Tenant, ...]:
        """Who runs still, of those that the last agent let start. A file that cannot be read is said and dropped."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            try:
                found = msgspec.json.decode(path.read_bytes(), type=Tenant)
            except msgspec.DecodeError as error:
                log.warning("a container's file dropped path=%s why=%s; its processes get no more memory", path, error)
                path.unlink()
                continue
            self._tenants[found.key] = found
        self.sweep()
        return self.all()

    def all(self) -> tuple[Tenant, ...]:
        """By id."""
        return tuple(sorted(self._tenants.values(), key=lambda each: (each.id, each.key)))

    def of(self, owner: Owner | None) -> Tenant | None:
        return None if owner is None else self._tenants.get(owner.pod_uid)

    def enter(self, new: Tenant, cards: Iterable[CardFacts]) -> None:
        """Count it and write it down. Raises `LimitError` when its cgroup is another's, or a card has not so much left."""
        present = self._tenants.get(new.key)
        if present is not None and present.id != new.id:
            text = f"its cgroup {new.cgroup} is that of container {present}: give each container a cgroup of its own"
            raise LimitError(text)
        for card in cards:
            self._check(new, card)
        path = self._path(new)
        making = path.with_suffix(".new")
        making.write_bytes(msgspec.json.encode(new))
        making.replace(path)
        self._tenants[new.key] = new

    def withdraw(self, gone: Tenant) -> None:
        self._tenants.pop(gone.key, None)
        self._path(gone).unlink(missing_ok=True)

    def sweep(self) -> tuple[Tenant, ...]:
        """Forget whose cgroup has no process any more, and say who that was."""
        gone = tuple(each for each in self.all() if not self._is_alive(each))
        for each in gone:
            self.withdraw(each)
        return gone

    def held_mib(self, uuid: str) -> int:
        return sum(each.limits.get(uuid, 0) for each in self._tenants.values())

    def owner_of_pid(self, pid: int, proc: Path = Path("/proc")) -> Owner | None:
        """Whose process it is: of the tenant in whose cgroup, or below it, it is. None of nobody's, or when it is gone."""
        try:
            text = (proc / str(pid) / "cgroup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        cgroups = {(each.hierarchy, each.cgroup): each for each in self._tenants.values()}
        found = (cgroups[place] for place in _places(text) if place in cgroups)
        return next((each.owner for each in found), None)

    def _check(self, new: Tenant, card: CardFacts) -> None:
        """Whether the card has so much left; the largest holder is named first."""
        uuid = card.uuid or ""
        asked = new.limits.get(uuid, 0)
        others = [each for each in self.all() if each.key != new.key and uuid in each.limits]
        left = card.memory_mib - sum(each.limits[uuid] for each in others)
        if self._may_overcommit or asked <= left or not asked:
            return
        holders = ", ".join(f"{each} ({each.limits[uuid]})" for each in sorted(others, key=lambda of: -of.limits[uuid]))
        raise LimitError(
            f"card {card.index} ({uuid}) has {max(0, left)} of its {card.memory_mib} MiB left and {asked} are asked; "
            f"held by {holders or 'nobody'}: stop a container, ask for fewer units, or set standalone.overcommit: allow"
        )

    def _is_alive(self, each: Tenant) -> bool:
        try:
            return _has_processes(self._cgroups.at(each.hierarchy, each.cgroup))
        except LimitError:
            return False

    def _path(self, each: Tenant) -> Path:
        return self._folder / f"{each.key}{SUFFIX}"


def _has_processes(folder: Path) -> bool:
    """In it or below it. Cgroups go while they are looked at."""
    try:
        return "populated 1\n" in (folder / "cgroup.events").read_text()
    except FileNotFoundError:
        pass  # v1 has no such file
    except OSError:
        return False
    return any(_procs(path) for path in (folder, *(path for path in folder.rglob("*") if path.is_dir())))


def _procs(folder: Path) -> str:
    try:
        return (folder / "cgroup.procs").read_text()
    except OSError:
        return ""


def _places(text: str) -> Iterator[tuple[str, str]]:
    """Hierarchy and path of what /proc/PID/cgroup names, each followed by its parents up to the root."""
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            hierarchy = name.removeprefix("name=") or "unified"
            for folder in (PurePosixPath(path), *PurePosixPath(path).parents):
                yield hierarchy, str(folder)
