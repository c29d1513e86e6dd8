"""Real cgroups for tests, made in the host's own tree and removed again. Needs root, as the suites that use it do."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from uuid import uuid4

MOUNT = Path("/sys/fs/cgroup")


def list_hierarchies() -> list[str]:
    """What this kernel offers: `unified` first, and `memory` of cgroup v1 where that is mounted."""
    if (MOUNT / "cgroup.controllers").exists():
        return ["unified"]
    return [name for name in ("unified", "memory") if (MOUNT / name).is_dir()]


class CgroupFolder:
    """`/vrampack-test-<random>/kubepods/burstable/pod<uid>/<id>` and, if one is started, a process in it."""

    def __init__(self, hierarchy: str) -> None:
        self.hierarchy = hierarchy
        self.pod_uid = str(uuid4())
        self.container_id = uuid4().hex * 2
        self.top = f"/vrampack-test-{uuid4().hex[:12]}"
        self.path = f"{self.top}/kubepods/burstable/pod{self.pod_uid}/{self.container_id}"
        self._process: subprocess.Popen[bytes] | None = None
        self.folder.mkdir(parents=True)

    @property
    def root(self) -> Path:
        """Where the hierarchy is mounted."""
        return MOUNT if (MOUNT / "cgroup.controllers").exists() else MOUNT / self.hierarchy

    @property
    def folder(self) -> Path:
        return self.root / self.path[1:]

    def start(self) -> int:
        """A process that does nothing, in this cgroup; its pid."""
        self._process = subprocess.Popen(["sleep", "1000"])
        (self.folder / "cgroup.procs").write_text(str(self._process.pid))
        return self._process.pid

    def remove(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(10)
        remove_tree(self.top)


def remove_tree(top: str) -> None:
    """Empty cgroups of that name, in every hierarchy: runtimes make theirs in all of them and leave the parents."""
    folders = [folder for root in (MOUNT, *MOUNT.iterdir()) for folder in [root / top[1:]] if folder.is_dir()]
    for folder in folders:
        for path in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
            path.rmdir()
        folder.rmdir()
