"""Runs kube-scheduler and the extender as they run in a pod: under the shipped service account, told nothing else.

Each gets a private mount namespace in which /var/run/secrets/kubernetes.io/serviceaccount holds its own
token, and the two environment variables that kubelet would set. So the shipped scheduler configuration
and extender configurations run unedited, and the shipped roles are all that either of them has.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.access_denials import ACCOUNT, NAMESPACE
from tests.support.control_plane.cluster import ControlPlane
from tests.support.processes import LOOPBACK, ManagedProcess, choose_free_ports

Address = tuple[str, int]

SCHEDULER, EXTENDER = "vrampack-scheduler", "vrampack-extender"
EXTENDER_PORT = 12345
"""Where the shipped scheduler configuration looks for the extender."""
URL_PREFIX = "/gpushare-scheduler"

# The tmpfs lies over /var/run (usually a link to /run) in this namespace only: nothing is made on the machine
# itself. The root is read-only, as in the pod. `setpriv` again, because entering a user namespace clears the
# request to die with the parent.
ENTER_POD = """\
secrets=/var/run/secrets/kubernetes.io/serviceaccount
mount -t tmpfs tmpfs /var/run && mkdir -p "$secrets" && mount --bind "$0" "$secrets" &&
mount -o remount,bind,ro / &&
exec setpriv --pdeathsig KILL -- "$@"
"""

_starts = itertools.count(1)


@dataclass(frozen=True, slots=True)
class ExtenderProgram:
    """A running extender: `url` is where its verbs are called, `health_url` where it reports its health.

    `front` is the proxy that stands on the shipped port and writes down the verb calls, if there is one.
    """

    process: ManagedProcess
    url: str
    health_url: str
    front: FaultProxyThread | None = None

    def wait_ready(self) -> None:
        self.process.wait_ready(f"{self.health_url}/readyz")


def start_extender(
    cluster: ControlPlane,
    *,
    port: int = EXTENDER_PORT,
    configuration: str | None = None,
    command: Sequence[str | Path] = (sys.executable, "-m", "vrampack.cli", "serve"),
    api: Address | None = None,
    ca_file: Path | None = None,
    wait: bool = True,
) -> ExtenderProgram:
    """Start the extender with the configuration that was installed, or another one.

    Give another `port` where a proxy listens on the shipped one.

    `api` and `ca_file` name a proxy before the API server; `command` another program with the same flags.
    """
    (health_port,) = choose_free_ports(1)
    folder = _pod_folder(cluster, EXTENDER)
    file = folder / "config.yaml"
    file.write_text(installed_configuration(cluster, EXTENDER) if configuration is None else configuration)
    flags = ("--listen", f"{LOOPBACK}:{port}", "--health-listen", f"{LOOPBACK}:{health_port}", "--ready-after", "0")
    command = [*command, "--config", file, *_scheduler_flags(cluster, folder), *flags]
    process = _in_pod(cluster, folder, command, api=api, ca_file=ca_file)
    extender = ExtenderProgram(process, f"http://{LOOPBACK}:{port}{URL_PREFIX}", f"http://{LOOPBACK}:{health_port}")
    process.start()
    if wait:
        extender.wait_ready()
    return extender


def start_scheduler(
    cluster: ControlPlane,
    *,
    program: Path | None = None,
    configuration: str | None = None,
    flags: Sequence[str] = (),
    verbosity: int = 2,
    api: Address | None = None,
    ca_file: Path | None = None,
) -> ManagedProcess:
    """Start kube-scheduler with the configuration that was installed, or another one, and wait until it is ready.

    `program` is another kube-scheduler than the control plane's. `flags` come before those that a test cannot do without.
    """
    (port,) = choose_free_ports(1)
    folder = _pod_folder(cluster, SCHEDULER)
    file = folder / "scheduler.yaml"
    file.write_text(installed_configuration(cluster, SCHEDULER) if configuration is None else configuration)
    serving = cluster.authority.issue_pair(folder.name)
    command = [
        str(program or cluster.binaries["kube-scheduler"]),
        *flags,
        f"--config={file}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        f"--v={verbosity}",
    ]
    process = _in_pod(cluster, folder, command, api=api, ca_file=ca_file)
    process.start()
    process.wait_ready(f"https://{LOOPBACK}:{port}/readyz", ca_file=cluster.ca_file)
    return process


def installed_configuration(cluster: ControlPlane, program: str) -> str:
    """What that program would find mounted from the shipped ConfigMap, whose name ends in a hash."""
    found = cluster.request_ok("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps")["items"]
    (made,) = [item for item in found if item["metadata"]["name"].startswith(f"{program}-config-")]
    (text,) = made["data"].values()
    return str(text)


def _scheduler_flags(cluster: ControlPlane, folder: Path) -> list[str | Path]:
    """The scheduler's configuration where the extender's pod has it mounted, too; in the kubeadm shape it has not."""
    found = cluster.request_ok("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps")["items"]
    if not any(item["metadata"]["name"].startswith(f"{SCHEDULER}-config-") for item in found):
        return []
    file = folder / "scheduler.yaml"
    file.write_text(installed_configuration(cluster, SCHEDULER))
    return ["--scheduler-config", file]


def _pod_folder(cluster: ControlPlane, program: str) -> Path:
    """A folder for one start, so that a restarted program keeps its predecessor's log and files."""
    folder = cluster.directory / f"{program}-{next(_starts)}"
    folder.mkdir()
    return folder


def _in_pod(
    cluster: ControlPlane,
    folder: Path,
    command: Sequence[str | Path],
    *,
    api: Address | None,
    ca_file: Path | None,
) -> ManagedProcess:
    """A program, not yet started, that finds what kubelet would give to its pod."""
    mounted = folder / "serviceaccount"
    mounted.mkdir()
    (mounted / "token").write_text(cluster.token(NAMESPACE, ACCOUNT))
    (mounted / "namespace").write_text(NAMESPACE)
    shutil.copy(ca_file or cluster.ca_file, mounted / "ca.crt")
    host, port = api or (cluster.api_host, cluster.api_port)
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    private = ["unshare", *user, "--mount", "--propagation", "private", "sh", "-c", ENTER_POD, str(mounted)]
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port)}
    return ManagedProcess(folder.name, [*private, *command], directory=folder, environment=environment)
