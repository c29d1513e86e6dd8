"""containerd with runc, whose base specification does what the NVIDIA runtime would do: put the driver into containers.

A container of the handler with the driver has the mounts of `DriverMounts` whether it asks for a card or not, and its hooks
are called for every container. Which handler that is, and which containerd, is in `containerd_release.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.node.containerd_release import DEFAULT_HANDLER, ContainerdRelease
from tests.node.controlplane import POD_RANGE
from tests.node.images import PAUSE_NAME
from tests.support.polling import wait_until
from tests.support.processes import ManagedProcess

SOCKET = Path("/run/containerd/containerd.sock")
NAMESPACE = "k8s.io"
HEAD = """\
version = {version}
root = "{root}"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = "{socket}"
"""
RESTRICTED = (
    "# Without CAP_SYS_RESOURCE no process may lower a score, and runc would die of it.\nrestrict_oom_score_adj = true"
)
SECTIONS = {
    2: """\
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
{restricted}
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{cni}"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
""",
    3: """\
[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
{restricted}
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "{cni}"
""",
}
"""What the node needs, by the version of the configuration. Whatever is not here is as containerd ships it."""
HANDLER = """\
[plugins."{plugin}".containerd.runtimes.{handler}]
runtime_type = "io.containerd.runc.v2"
{base}
[plugins."{plugin}".containerd.runtimes.{handler}.options]
SystemdCgroup = false
"""
PLUGINS = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
BRIDGE = "cni0"
NETWORK = {
    "cniVersion": "0.4.0",
    "name": "node",
    "plugins": [
        {
            "type": "bridge",
            "bridge": BRIDGE,
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


class ContainerdNode:
    """One containerd on the node: its program and its client, of the release that is asked for."""

    def __init__(
        self, release: ContainerdRelease, directory: Path, logs: Path, *, programs: Path, driver: DriverMounts
    ) -> None:
        """Not yet started; everything it must find is written. Programs that are not in `programs` are those of PATH."""
        directory.mkdir()
        self.release = release
        self.base_specification = directory / "base.json"
        """What every container of the handler with the driver is made of; read at each start of containerd."""
        self._path = f"{programs}:{os.environ['PATH']}"
        (directory / "cni").mkdir()
        (directory / "cni" / "10-node.conflist").write_text(json.dumps(NETWORK))
        self.base_specification.write_text(json.dumps(self._describe_container(driver)))
        self._file = directory / "containerd.toml"
        self._file.write_text(self._configuration(directory))
        # The runtime's shim is looked for on its PATH: each release brings its own.
        self.process = ManagedProcess(
            release.name,
            [self._program("containerd"), "--config", self._file],
            directory=logs,
            environment={"PATH": self._path},
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.process.start()
        with suppress(TimeoutError):
            wait_until(self.is_up, timeout_seconds=30)
        if not self.is_up():
            raise RuntimeError(f"{self.release.name} does not answer\n{self.process.log_tail()}")

    def switch_cdi_on(self) -> None:
        """As the agent advises for a release that has it off; counts from the next start on."""
        section = f'[plugins."{PLUGINS[self.release.configuration]}"]\n'
        self._file.write_text(self._file.read_text().replace(section, f"{section}enable_cdi = true\n"))

    def add_handler(self, name: str, program: Path) -> None:
        """A runtime handler that calls this program in place of runc; counts from the next start on."""
        plugin = PLUGINS[self.release.configuration]
        text = HANDLER.format(plugin=plugin, handler=name, base="") + f'BinaryName = "{program}"\n'
        self._file.write_text(self._file.read_text() + text)

    def kill(self) -> None:
        self.process.kill()

    def is_up(self) -> bool:
        return SOCKET.exists() and self._run("version").returncode == 0

    def load_images(self, archives: Sequence[Path], *, names: Mapping[str, str]) -> None:
        """Import images, and give them further names. One without a domain would spoil every other name of its image."""
        for archive in archives:
            self._ctr("images", "import", str(archive))
        for present, further in names.items():
            self._ctr("images", "tag", "--force", present, further)

    def _configuration(self, directory: Path) -> str:
        version = self.release.configuration
        handlers = sorted({DEFAULT_HANDLER, self.release.handler_with_driver})
        bases = {self.release.handler_with_driver: f'base_runtime_spec = "{self.base_specification}"'}
        parts = [
            HEAD.format(version=version, root=directory / "root", socket=SOCKET),
            SECTIONS[version].format(pause=PAUSE_NAME, cni=directory / "cni", restricted=RESTRICTED),
            *(
                HANDLER.format(plugin=PLUGINS[version], handler=handler, base=bases.get(handler, ""))
                for handler in handlers
            ),
        ]
        return "".join(parts)

    def _describe_container(self, driver: DriverMounts) -> dict[str, Any]:
        """As containerd itself makes it, and the driver's part."""
        made: dict[str, Any] = json.loads(self._ctr("oci", "spec"))
        made["mounts"] += [
            {"destination": inside, "type": "bind", "source": str(outside), "options": ["rbind", "rprivate", "rw"]}
            for inside, outside in driver.mounts.items()
        ]
        if driver.create_runtime_hooks:
            made["hooks"] = {"createRuntime": [dict(hook) for hook in driver.create_runtime_hooks]}
        return made

    def _ctr(self, *arguments: str) -> str:
        done = self._run(*arguments)
        if done.returncode:
            raise RuntimeError(f"ctr {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [self._program("ctr"), "--address", str(SOCKET), "--namespace", NAMESPACE, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_SECONDS)

    def _program(self, name: str) -> str:
        found = shutil.which(name, path=self._path)
        if found is None:
            raise RuntimeError(f"{name} is not on PATH")
        return found
