"""Cgroup paths: from a pod or a container to its cgroup, and from a cgroup or a process back to them.

    cgroupfs   kubepods/burstable/pod1d3a-../4f1e..
    systemd    kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1d3a_...slice/cri-containerd-4f1e...scope
    mixed      kubepods-burstable-pod1d3a_...slice:cri-containerd:4f1e..   (a systemd name given to a cgroupfs driver)

Guaranteed pods have no class in their path. A `cgroupRoot`, kind and k3s put folders in front (`kubelet/kubepods`,
`kubelet.slice/kubelet-kubepods.slice`), so the code searches for the pods' folder. When kubelets are nested the outermost
pod counts: it is this node's, and its containers can choose all names below it.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from vrampack.agent.limits.errors import LimitError

CGROUP_MOUNT = Path("/sys/fs/cgroup")
CGROUP_V2 = 2
PROC = Path("/proc")
MAX_DEPTH = 5
"""How deep to search for the pods' folder: docker/<id>/kubelet/kubepods is 4."""

_UID = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_ID = r"[0-9a-f]{64}"
_KUBEPODS = re.compile(r"kubepods|(?:.+-)?kubepods\.slice")
_POD = re.compile(rf"pod(?P<uid>{_UID})")
_POD_SLICE = re.compile(
    rf"(?:.+-)?kubepods(?:-burstable|-besteffort)?-pod(?P<uid>{_UID})\.slice(?::[\w.-]+:(?P<id>{_ID}))?"
)
_CONTAINER = re.compile(rf"(?:[a-z][a-z-]*-)?(?P<id>{_ID})(?:\.scope)?")
_CLASSES = ("", "burstable", "besteffort")
_FOLDERS = {"kubepods", "burstable", "besteffort", ".."}
"""What may precede a pod's folder. `..`: seen from a cgroup namespace of the same class, as the agent's own may be."""
_GONE_CODES = (errno.ENOENT, errno.ESRCH, errno.ENAMETOOLONG)
"""Errors of /proc/PID/cgroup: no such process, or a path longer than the kernel shows, by nesting cgroups in a container."""
_HELPER = "crio-conmon-"
"""CRI-O's monitor of a container has a scope of its own beside it, with the same id."""


@dataclass(frozen=True, slots=True)
class CgroupOwner:
    """The pod and container that own a cgroup."""

    pod_uid: str
    container_id: str = ""
    """Empty for the pod's own cgroup, and for cgroups in it that are no containers."""


FindOwner: TypeAlias = Callable[[int], CgroupOwner | None]
"""The owner of a process by its pid; None for a process in no pod, and for one that is gone."""


def parse_owner(path: str) -> CgroupOwner | None:
    """The pod and container that a cgroup path names; None outside of pods."""
    parts = path.split("/")
    for at, part in enumerate(parts):
        match = _POD_SLICE.fullmatch(part)
        if match is None and at and parts[at - 1] in _FOLDERS:
            match = _POD.fullmatch(part)
        if match is not None:
            container_id = match.groupdict().get("id") or _parse_container_id(
                parts[at + 1] if at + 1 < len(parts) else ""
            )
            return CgroupOwner(match["uid"].replace("_", "-"), container_id)
    return None


def find_process_owner(pid: int, proc: Path = PROC) -> CgroupOwner | None:
    """The pod and container of a process; None outside of pods, and for a process that is gone."""
    paths = (path for _, path in list_process_cgroups(pid, proc))
    return next((found for path in paths if (found := parse_owner(path)) is not None), None)


def list_process_cgroups(pid: int, proc: Path = PROC) -> list[tuple[str, str]]:
    """The controllers and the path of each cgroup that a process is in; empty for a process that is gone.

    A container that may create cgroups chooses their names: any bytes but a slash and a newline, including invalid UTF-8
    and characters at which Python splits lines.
    """
    try:
        content = (proc / str(pid) / "cgroup").read_bytes()
    except OSError as error:
        if error.errno not in _GONE_CODES:
            raise
        return []
    lines = content.decode(errors="surrogateescape").split("\n")
    return [(controllers, path) for line in lines if line for _, controllers, path in [line.split(":", 2)]]


def walk_cgroup(folder: Path) -> Iterator[Path]:
    """The cgroup and all below it that still exist when the walk reaches them. A container may nest them without end."""
    waiting = [folder]
    while waiting:
        each = waiting.pop()
        yield each
        with suppress(OSError):
            waiting += _folders(each)


def has_processes(folder: Path) -> bool:
    """Whether a process is in the cgroup or below it. Cgroups may disappear during the check."""
    try:
        return "populated 1\n" in (folder / "cgroup.events").read_text()
    except FileNotFoundError:
        pass  # v1 has no such file
    except OSError:
        return False
    return any(_has_own_process(each) for each in walk_cgroup(folder))


class CgroupTree:
    """The host's cgroup tree, `/sys/fs/cgroup`, wherever it is mounted here."""

    def __init__(self, mount: Path) -> None:
        self._mount = mount
        self.version = CGROUP_V2 if _is_unified(mount) else 1
        """2 only if everything is unified; hybrid hosts count as 1, because they have their controllers on v1."""
        self._pods_folders: tuple[Path, ...] = ()

    def get_folder(self, hierarchy: str, path: str) -> Path:
        """The folder of a cgroup. `hierarchy` is `unified` or a v1 hierarchy's name, `path` starts at its root."""
        parts = path.split("/")
        if not path.startswith("/") or path == "/" or ".." in parts or "/" in hierarchy or hierarchy in {"", ".."}:
            raise LimitError(f"{hierarchy}:{path} is not a container's cgroup")
        folder = self._hierarchy(hierarchy).joinpath(*parts[1:])
        if not folder.is_dir():
            raise LimitError(f"{folder} is not there: is the host's cgroup tree mounted at {self._mount}?")
        return folder

    def find_pod_cgroup(self, uid: str) -> Path | None:
        """The pod's own cgroup; None while kubelet has created none."""
        found = self._find_known_pod(uid)
        if found is None:
            self._pods_folders = self.find_pods_cgroups()
            found = self._find_known_pod(uid)
        return found

    def has_pods_folder(self) -> bool:
        """Whether a kubelet's folder of pods is visible at all."""
        return bool(self.find_pods_cgroups())

    def find_pods_cgroups(self) -> tuple[Path, ...]:
        """The cgroup below which kubelet has all its pods; several if there are several kubelets."""
        return tuple(_pods_folders(self._pods_hierarchy()))

    def find_container_cgroup(self, uid: str, container_id: str) -> Path | None:
        """The container's own cgroup, below its pod's."""
        pod = self.find_pod_cgroup(uid)
        if pod is None:
            return None
        return next((folder for folder in _folders(pod) if _parse_container_id(folder.name) == container_id), None)

    def _hierarchy(self, name: str) -> Path:
        if self.version == 1:
            return self._mount / name
        if name != "unified":
            raise LimitError(f"this node has cgroup v2 only, and no hierarchy {name}")
        return self._mount

    def _pods_hierarchy(self) -> Path:
        """On v1 the memory hierarchy: kubelet needs it, so every node with pods has it."""
        return self._mount if self.version == CGROUP_V2 else self._mount / "memory"

    def _find_known_pod(self, uid: str) -> Path | None:
        candidates = (name for folder in self._pods_folders for name in _pod_folders(folder, uid))
        return next((folder for folder in candidates if folder.is_dir()), None)


def _is_unified(mount: Path) -> bool:
    return (mount / "cgroup.controllers").exists()


def _parse_container_id(name: str) -> str:
    match = _CONTAINER.fullmatch(name)
    return match["id"] if match is not None and not name.startswith(_HELPER) else ""


def _has_own_process(folder: Path) -> bool:
    """Whether a process is in this cgroup itself; true for one whose path is too long to be read."""
    try:
        return bool((folder / "cgroup.procs").read_text())
    except OSError as error:
        return error.errno == errno.ENAMETOOLONG


def _folders(folder: Path) -> list[Path]:
    """The subfolders, sorted for a stable order; none if the folder disappears meanwhile."""
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []


def _pods_folders(top: Path) -> Iterator[Path]:
    """Every `kubepods`, level by level, and nothing below one."""
    level = [top]
    for _ in range(MAX_DEPTH):
        below = [folder for parent in level for folder in _folders(parent)]
        yield from (folder for folder in below if _KUBEPODS.fullmatch(folder.name))
        level = [folder for folder in below if not _KUBEPODS.fullmatch(folder.name)]


def _pod_folders(pods: Path, uid: str) -> Iterator[Path]:
    """The folders below one `kubepods` where a pod of any class may be."""
    slice_name = pods.name.removesuffix(".slice")
    for qos in _CLASSES:
        if slice_name == pods.name:
            yield pods / qos / f"pod{uid}"
            continue
        parent = f"{slice_name}-{qos}" if qos else slice_name
        name = f"{parent}-pod{uid.replace('-', '_')}.slice"
        yield pods / f"{parent}.slice" / name if qos else pods / name
