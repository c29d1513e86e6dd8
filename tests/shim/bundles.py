"""OCI bundles with one static program, and the runc that runs them, in cgroup v1 and in cgroup v2."""

from __future__ import annotations

import asyncio
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from tests.support.cgroup_folders import MOUNT, remove_tree

FIRST_PROCESS = """
#include <fcntl.h>
#include <unistd.h>
int main(void)
{
	int fd = open("/out/ran", O_CREAT | O_WRONLY, 0644);
	return fd < 0 || write(fd, "x", 1) != 1;
}
"""
V2 = 'mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"'
"""In a mount namespace of its own: runc assumes cgroup v2 where /sys/fs/cgroup is one cgroup2 mount."""
NAMESPACES = ("pid", "mount", "ipc", "uts", "network")


def modes() -> list[str]:
    """How runc can be run on this kernel: `v2` everywhere, `v1` where those hierarchies are mounted."""
    return ["v2"] if (MOUNT / "cgroup.controllers").exists() else ["v2", "v1"]


@dataclass(frozen=True)
class BundleResult:
    status: int
    complaint: str


class OciBundle:
    """One container. Its first process writes a file: `has_run` says whether it got that far."""

    def __init__(self, folder: Path, hook: Path, arguments: list[str], env: list[str]) -> None:
        self.folder = folder
        self.pod_uid = str(uuid4())
        self.container_id = uuid4().hex * 2
        self.top = f"/vrampack-test-{uuid4().hex[:12]}"
        self.cgroup = f"{self.top}/kubepods/burstable/pod{self.pod_uid}/{self.container_id}"
        (folder / "out").mkdir()
        (folder / "rootfs").mkdir()
        compiler = ["gcc", "-static", "-x", "c", "-", "-o", str(folder / "rootfs" / "first")]
        subprocess.run(compiler, input=FIRST_PROCESS.encode(), check=True, timeout=60)
        (folder / "config.json").write_text(json.dumps(self._config(hook, arguments, env)))

    def _config(self, hook: Path, arguments: list[str], env: list[str]) -> dict[str, object]:
        out = {"destination": "/out", "type": "bind", "source": str(self.folder / "out"), "options": ["bind", "rw"]}
        return {
            "ociVersion": "1.0.2",
            "process": {"args": ["/first"], "cwd": "/", "env": env, "user": {"uid": 0, "gid": 0}},
            "root": {"path": "rootfs", "readonly": True},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}, out],
            "annotations": {
                "io.kubernetes.cri.container-type": "container",
                "io.kubernetes.cri.sandbox-namespace": "ml",
                "io.kubernetes.cri.sandbox-name": "app-0",
                "io.kubernetes.cri.sandbox-uid": self.pod_uid,
                "io.kubernetes.cri.container-name": "main",
            },
            "hooks": {"createRuntime": [{"path": str(hook), "args": [hook.name, *arguments]}]},
            "linux": {
                "cgroupsPath": self.cgroup,
                "namespaces": [{"type": kind} for kind in NAMESPACES],
                "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            },
        }

    @property
    def has_run(self) -> bool:
        return (self.folder / "out" / "ran").exists()

    async def run(self, mode: str) -> BundleResult:
        runc = ["runc", f"--root={self.folder / 'runc'}", "run", f"--bundle={self.folder}", self.container_id]
        command = ["unshare", "--mount", "sh", "-c", V2, "sh", *runc] if mode == "v2" else runc
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        _, complaint = await process.communicate()
        assert process.returncode is not None
        return BundleResult(process.returncode, complaint.decode())

    def remove(self) -> None:
        remove_tree(self.top)
