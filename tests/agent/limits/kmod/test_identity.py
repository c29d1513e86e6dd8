"""On cgroup v1: which process identifies a container, and which containers cannot be told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.simulated_kmod import write_proc, write_process
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.kmod.budget_owner import find_pid_namespace, read_cgroup_id
from vrampack.agent.limits.kmod.proc_client import CgroupId, PidNamespace

Pids = dict[int, tuple[int, ...]]
"""Numbers of a process in the namespaces from the node's inwards, by its number there."""

THERE: dict[str, tuple[Pids, int, int]] = {
    "the one that the hook names": ({50: (50, 1), 51: (51, 2)}, 50, 50),
    "the first of a container that runs": ({51: (51, 2), 60: (60, 1)}, 0, 60),
    # a container in the container has a first process as well, one namespace further in
    "the outermost first one": ({40: (40, 9, 1), 60: (60, 1)}, 0, 60),
}


def a_cgroup(folder: Path, pids: Pids) -> Path:
    """A cgroup with a folder below it, as an init system in the container makes."""
    below = folder / "c1" / "init.scope"
    below.mkdir(parents=True)
    first, *others = [str(pid) for pid in pids] or [""]
    (folder / "c1" / "cgroup.procs").write_text(f"{first}\n")
    (below / "cgroup.procs").write_text("\n".join(others))
    write_proc(folder)
    for pid, numbers in pids.items():
        write_process(folder / "proc", pid, numbers)
    return folder / "c1"


@pytest.mark.parametrize(("pids", "said", "want"), THERE.values(), ids=THERE)
def test_container_is_identified_by_the_pid_namespace_of_its_first_process(
    tmp_path: Path, pids: Pids, said: int, want: int
) -> None:
    folder = a_cgroup(tmp_path, pids)
    assert find_pid_namespace(folder, said, tmp_path / "proc") == PidNamespace(want)


REFUSED: dict[str, tuple[Pids, int, str]] = {
    "with the node's": ({50: (50,)}, 50, "shares that of its pod, of another container or of the node"),
    "with its pod's or another's": ({50: (50, 7)}, 50, "leave out hostPID, shareProcessNamespace or --pid"),
    "of which nothing runs": ({}, 0, "has no process"),
    "whose process is somewhere else": ({50: (50, 1)}, 70, "process 70 is not in cgroup"),
}


@pytest.mark.parametrize(("pids", "said", "why"), REFUSED.values(), ids=REFUSED)
def test_a_container_without_a_pid_namespace_of_its_own_is_refused(
    tmp_path: Path, pids: Pids, said: int, why: str
) -> None:
    folder = a_cgroup(tmp_path, pids)
    with pytest.raises(LimitError, match=why):
        find_pid_namespace(folder, said, tmp_path / "proc")


def test_first_process_of_the_node_identifies_no_container(tmp_path: Path) -> None:
    """Its only number is 1: everything on the node would be one container."""
    folder = a_cgroup(tmp_path, {1: (1,)})
    with pytest.raises(LimitError, match="of the node"):
        find_pid_namespace(folder, 1, tmp_path / "proc")


def test_cgroup_v2_is_identified_by_the_inode_of_its_folder(tmp_path: Path) -> None:
    assert read_cgroup_id(tmp_path) == CgroupId(tmp_path.stat().st_ino)
    with pytest.raises(LimitError, match=r"cgroup .*/gone: No such file"):
        read_cgroup_id(tmp_path / "gone")
