"""What a run may leave behind on the machine, read before and after it, and the rest put back.

Processes, mounts, addresses and rules end with the namespaces. Two things are the machine's own: the folders that kubelet
and runc make in the control group trees, and three settings of the kernel that kubelet sets.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
SETTINGS = tuple(Path("/proc/sys") / name for name in ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops"))
SYSTEM_FOLDERS = tuple(
    map(
        Path,
        ("/etc", "/etc/cni", "/etc/cdi", "/opt", "/opt/cni", "/run", "/var/run", "/var/lib", "/var/log", "/usr/lib"),
    )
)
"""Where the programs of a node would write, were they not in a mount namespace of their own."""


@dataclass(frozen=True, slots=True)
class HostState:
    """The state that a run could change."""

    mounts: frozenset[str]
    settings: dict[Path, str]
    cgroups: frozenset[Path]
    names: frozenset[Path]

    @classmethod
    def read(cls) -> HostState:
        return cls(
            mounts=frozenset(_mounts()),
            settings={path: path.read_text() for path in SETTINGS},
            # A folder that disappears meanwhile was not this run's.
            cgroups=frozenset(Path(folder) for folder, _, _ in os.walk(CGROUPS)),
            names=frozenset(path for folder in SYSTEM_FOLDERS if folder.is_dir() for path in folder.iterdir()),
        )

    def restore(self, *, cgroup: str) -> None:
        """Undo what no namespace undoes: the folders of this run's control group, and the settings."""
        remove_cgroup(cgroup)
        for path, value in self.settings.items():
            if path.read_text() != value:
                path.write_text(value)

    def differences(self, later: HostState) -> list[str]:
        """What was added or removed between the two; should be empty."""
        found = [f"mount {'left' if line in later.mounts else 'gone'}: {line}" for line in self.mounts ^ later.mounts]
        found += [f"folder left: {path}" for path in later.cgroups - self.cgroups if not _is_in_use(path)]
        found += [f"file left: {path}" for path in later.names - self.names]
        found += [
            f"setting {path}: {value.strip()} became {later.settings[path].strip()}"
            for path, value in self.settings.items()
            if later.settings[path] != value
        ]
        return sorted(found)


def hierarchies() -> list[Path]:
    """Every control group tree that is mounted: one for version 2, one per controller for version 1."""
    lines = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(line[1]) for line in lines if line[2] in {"cgroup", "cgroup2"}]


def remove_cgroup(name: str) -> None:
    """In every tree, with everything below it; no process may be left in there."""
    for tree in hierarchies():
        for path in sorted((tree / name).glob("**"), key=lambda path: len(path.parts), reverse=True):
            path.rmdir()


def processes_in(namespace: str) -> list[int]:
    """The processes in this PID namespace (`pid:[4026532000]`)."""
    return [pid for pid, lives_in in _namespaces() if lives_in == namespace]


def _namespaces() -> Iterator[tuple[int, str]]:
    for folder in Path("/proc").iterdir():
        with suppress(OSError):  # ended meanwhile
            if folder.name.isdigit():
                yield int(folder.name), str((folder / "ns" / "pid").readlink())


def _mounts() -> Iterator[str]:
    """Mount point, kind and source; their numbers differ from one look to the next."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        source, where, kind, *_ = line.split()
        yield f"{where} {kind} {source}"


def _is_in_use(cgroup: Path) -> bool:
    """Somebody else's: ours have no process any more."""
    try:
        return bool((cgroup / "cgroup.procs").read_text().strip())
    except OSError:  # gone meanwhile
        return True
