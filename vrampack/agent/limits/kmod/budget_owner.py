"""Names the owner of a budget to the module: on cgroup v2 a cgroup by its id, on v1 the PID namespace of a container's first process.

Both are looked up in the container's cgroup folder, which the runtime named. A pid from elsewhere is trusted only if that
process is in that folder. The module understands the same pid, because an agent that names pids to it runs in the initial PID
namespace (`preflight.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vrampack.agent.limits.cgroups import PROC, walk_cgroup
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.kmod.proc_client import CgroupId, PidNamespace

_INITIAL_PIDS = "pid:[4026531836]"
"""The initial PID namespace has the same number in every kernel (PROC_PID_INIT_INO)."""


def read_cgroup_id(folder: Path) -> CgroupId:
    """The id of a cgroup. Raises `LimitError` when its folder is gone."""
    try:
        return CgroupId(folder.stat().st_ino)
    except OSError as error:
        raise LimitError(f"cgroup {folder}: {error.strerror}") from error


def find_pid_namespace(folder: Path, pid: int = 0, proc: Path = PROC) -> PidNamespace:
    """The PID namespace of the container in this cgroup: that of `pid` or, if 0, of its first process.

    Raises `LimitError` for a container without its own PID namespace, since it could not be told from others.
    """
    there = sorted(_list_pids(folder))
    if not there:
        raise LimitError(f"cgroup {folder} has no process: a container of cgroup v1 is known by its first one")
    if pid and pid not in there:
        raise LimitError(
            f"process {pid} is not in cgroup {folder}: the hook and the agent see different process ids (hostPID?)"
        )
    first = sorted(
        (len(inner), each)
        for each in ([pid] if pid else there)
        if (inner := _read_namespace_pids(each, proc))[-1:] == [1]
    )
    if not first or first[0][0] == 1:
        raise LimitError(
            f"cgroup {folder}: on cgroup v1 a container is known by its PID namespace, and this one shares that of its "
            "pod, of another container or of the node: leave out hostPID, shareProcessNamespace or --pid, or use cgroup v2"
        )
    return PidNamespace(first[0][1])


def is_initial_pid_namespace(proc: Path = PROC) -> bool:
    """Whether this process is in the node's initial PID namespace, so that pids mean the same to the kernel."""
    return str((proc / "self/ns/pid").readlink()) == _INITIAL_PIDS


def _list_pids(folder: Path) -> Iterator[int]:
    for path in walk_cgroup(folder):
        try:
            yield from map(int, (path / "cgroup.procs").read_text().split())
        except OSError:
            continue  # the cgroup has just disappeared


def _read_namespace_pids(pid: int, proc: Path) -> list[int]:
    """The pids of a process in each PID namespace from this one inwards; empty if it is gone."""
    try:
        text = (proc / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return []
    rows = [line.split()[1:] for line in text.splitlines() if line.startswith("NSpid:")]
    return [int(each) for each in rows[0]] if rows else []
