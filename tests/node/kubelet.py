"""kubelet, configured for the machine as it is: control groups of version 1, no swap, no spare disk."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.node.containerd import SOCKET
from tests.node.controlplane import NODE_ADDRESS, NODE_NAME, NodeControlPlane
from tests.node.machine import hierarchies
from tests.support.processes import ManagedProcess

ROOT = Path("/var/lib/kubelet")
DEVICE_PLUGINS = ROOT / "device-plugins"
POD_RESOURCES = ROOT / "pod-resources" / "kubelet.sock"
POD_LOGS = Path("/var/log/pods")
PORT = 10250


def kubelet(cluster: NodeControlPlane, directory: Path, *, cgroup: str) -> ManagedProcess:
    """The program, not yet started; the control group below which it keeps its pods is made."""
    directory.mkdir()
    static = static_pods(directory)
    static.mkdir()
    make_cgroup(cgroup)
    file = directory / "kubelet.json"
    file.write_text(json.dumps(_configuration(cluster, directory, cgroup=cgroup)))
    user = f"system:node:{NODE_NAME}"
    command: list[str | Path] = [
        cluster.programs / "kubelet",
        f"--config={file}",
        f"--kubeconfig={cluster.kubeconfig(user, group='system:nodes')}",
        f"--root-dir={ROOT}",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={NODE_ADDRESS}",
        "--v=2",
    ]
    return ManagedProcess("kubelet", command, directory=cluster.logs)


def static_pods(directory: Path) -> Path:
    """The folder of static pods' manifests."""
    return directory / "static"


def make_cgroup(name: str) -> None:
    """Kubelet wants the root of its control groups to be there, in every tree."""
    for tree in hierarchies():
        (tree / name).mkdir(exist_ok=True)
        for limit in ("cpuset.mems", "cpuset.cpus"):
            if (tree / name / limit).exists() and (tree / limit).exists():
                (tree / name / limit).write_text((tree / limit).read_text())


def _configuration(cluster: NodeControlPlane, directory: Path, *, cgroup: str) -> dict[str, object]:
    serving = cluster.authority.issue_pair(f"kubelet-{NODE_NAME}")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "port": PORT,
        "authentication": {
            "x509": {"clientCAFile": str(cluster.authority.ca_file)},
            "webhook": {"enabled": True},
            "anonymous": {"enabled": False},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,  # a lower score needs CAP_SYS_RESOURCE
        "clusterDNS": ["10.96.0.10"],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        "makeIPTablesUtilChains": False,
        "staticPodPath": str(static_pods(directory)),
        "podLogsDir": str(POD_LOGS),
        "volumePluginDir": str(directory / "volume-plugins"),
        "nodeStatusUpdateFrequency": "2s",  # 10 s by default; what a plugin advertises is seen at the next one
        "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},  # what a test kills twice need not wait for minutes
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "shutdownGracePeriod": "0s",
    }


def forget_sockets() -> None:
    """What a reboot takes from kubelet's folder; its checkpoint of devices stays."""
    for folder in (DEVICE_PLUGINS, POD_RESOURCES.parent):
        for path in folder.glob("*"):
            if path.is_socket():
                path.unlink()
    shutil.rmtree("/run/vrampack", ignore_errors=True)


def remove_files() -> None:
    """Everything that kubelet and its containers keep on the disk; none of it may still be mounted."""
    for folder in (ROOT, POD_LOGS):
        for path in folder.glob("*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
