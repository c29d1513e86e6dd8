"""Processes of containers, found as the machine sees them: by control group, by command line."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL

from tests.node.containerd import BRIDGE
from tests.node.machine import hierarchies
from tests.support.polling import wait_until

SHIM = "containerd-shim-runc-v2"
OF_THE_RUNTIME = (Path("/run/containerd"), Path("/run/netns"))


def pids_of(words: str) -> list[int]:
    """Processes whose command line has these words; a Python program stands behind its interpreter."""
    return [pid for pid, line in _command_lines() if words in line and "pytest" not in line]


def kill_process(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, SIGKILL)


def end_all(cgroup: str) -> None:
    """As a machine that stops: shims first, so that nothing is written down about the end of what they held."""
    for pid in pids_of(SHIM):
        kill_process(pid)
    wait_until(lambda: not _kill_members(cgroup), what="the processes of all containers are gone")
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        where = line.split()[1]
        if where.startswith(("/var/lib/kubelet/pods/", *(f"{path}/" for path in OF_THE_RUNTIME))):
            subprocess.run(["umount", "--lazy", where], check=True)
    for path in OF_THE_RUNTIME:
        shutil.rmtree(path, ignore_errors=True)


def remove_network() -> None:
    """The bridge of all pods, where there was one."""
    if Path("/sys/class/net", BRIDGE).exists():
        subprocess.run(["ip", "link", "delete", BRIDGE], check=True)


def _kill_members(cgroup: str) -> list[int]:
    files = [file for tree in hierarchies() for file in (tree / cgroup).rglob("cgroup.procs")]
    members = sorted({int(pid) for file in files for pid in file.read_text().split()})
    for pid in members:
        kill_process(pid)
    return members


def _command_lines() -> list[tuple[int, str]]:
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit():
                found.append((int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
    return found
