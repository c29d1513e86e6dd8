"""containerd with runc, told by its base specification what the NVIDIA runtime would do: put the driver into containers.

A container is given the mounts of `Driver` whether it asks for a card or not, and its hooks are called for every container.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.node.controlplane import POD_RANGE
from tests.node.images import PAUSE_NAME
from tests.support.processes import ManagedProcess

SOCKET = Path("/run/containerd/containerd.sock")
NAMESPACE = "k8s.io"
CONFIGURATION = """\
version = 2
root = "{root}"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
# Where CAP_SYS_RESOURCE is missing nobody may lower a score, and runc would die of it.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{cni}"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
base_runtime_spec = "{base}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
"""
NETWORK = {
    "cniVersion": "0.4.0",
    "name": "node",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": POD_RANGE}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}
COMMAND_TIMEOUT_SECONDS = 120


@dataclass(frozen=True, slots=True)
class DriverMounts:
    """What the NVIDIA runtime would add to a container: files of the host by their path inside, and hooks."""

    mounts: Mapping[str, Path]
    create_runtime_hooks: Sequence[Mapping[str, object]] = ()
    """Entries of `hooks.createRuntime` of the runtime specification."""


def containerd(directory: Path, logs: Path, driver: DriverMounts) -> ManagedProcess:
    """The program, not yet started; everything it must find is written."""
    directory.mkdir()
    cni = directory / "cni"
    cni.mkdir()
    (cni / "10-node.conflist").write_text(json.dumps(NETWORK))
    base = directory / "base.json"
    base.write_text(json.dumps(base_specification(driver)))
    file = directory / "containerd.toml"
    text = CONFIGURATION.format(root=directory / "root", socket=SOCKET, pause=PAUSE_NAME, cni=cni, base=base)
    file.write_text(text)
    return ManagedProcess("containerd", [_program("containerd"), "--config", file], directory=logs)


def base_specification(driver: DriverMounts) -> dict[str, Any]:
    """What every container is made of: containerd's own, and the driver's part."""
    made: dict[str, Any] = json.loads(_ctr("oci", "spec"))
    made["mounts"] += [
        {"destination": inside, "type": "bind", "source": str(outside), "options": ["rbind", "rprivate", "rw"]}
        for inside, outside in driver.mounts.items()
    ]
    if driver.create_runtime_hooks:
        made["hooks"] = {"createRuntime": [dict(hook) for hook in driver.create_runtime_hooks]}
    return made


def is_containerd_up() -> bool:
    return SOCKET.exists() and _run("version").returncode == 0


def load_images(archives: Sequence[Path], *, names: Mapping[str, str]) -> None:
    """Import images, and give them further names. One without a domain would spoil every other name of its image."""
    for archive in archives:
        _ctr("images", "import", str(archive))
    for present, further in names.items():
        _ctr("images", "tag", present, further)


def _ctr(*arguments: str) -> str:
    done = _run(*arguments)
    if done.returncode:
        raise RuntimeError(f"ctr {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [_program("ctr"), "--address", str(SOCKET), "--namespace", NAMESPACE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_SECONDS)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is not on PATH")
    return found
