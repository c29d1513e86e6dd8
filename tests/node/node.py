"""One running node, on which tests cause what happens to nodes.

    with LiveNode.boot(NodeSite.inside_namespaces(), DEBIAN_1_6, DriverMounts({...})) as node:
        node.install("second-scheduler")
        node.kubectl("get", "pods")
        node.kill_kubelet(); node.start_kubelet()

Calls act as cluster administrator. Processes are children of the test program, except what containerd starts. After it
another may be booted: what a node has on its disk and in its control groups goes with it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP
from types import TracebackType
from typing import Self, TypeVar

from tests.node import containers, kubelet
from tests.node.api_reader import ApiReader, Json
from tests.node.containerd import ContainerdNode, DriverMounts
from tests.node.containerd_release import ContainerdRelease
from tests.node.controlplane import API_URL, NODE_ADDRESS, NODE_NAME, SERVICE_ADDRESS, NodeControlPlane
from tests.node.images import BUILT, BUILT_NAME, SHIPPED_NAME
from tests.node.machine import remove_cgroup
from tests.node.node_site import NodeSite
from tests.node.nvidia_spec import remake_spec_folder
from tests.support.manifests import MANIFESTS
from tests.support.polling import wait_until
from tests.support.processes import ManagedProcess
from vrampack.cli import kubectl_plugin

T = TypeVar("T")

NAMESPACE = "vrampack-system"
AGENT = "vrampack agent"
"""How the agent's process calls itself."""
KUBECTL_TIMEOUT_SECONDS = 120
INTERVAL_SECONDS = 0.05
"""Between two looks: most ask the API server, which shares two cores with all that is waited for."""
ADDRESSES = (NODE_ADDRESS, SERVICE_ADDRESS)
LEFT_ON_DISK = ("/etc/cdi", "/run/cdi", "/etc/vrampack", "/var/lib/vrampack", "/var/lib/cni/networks")
"""Folders that programs on the node write to by fixed names, beside kubelet's own."""


class LiveNode:
    """See the module."""

    def __init__(self, around: NodeSite, release: ContainerdRelease, driver: DriverMounts) -> None:
        for address in ADDRESSES:
            subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        self._around = around
        self.release = release
        self.driver = driver
        self._directory = around.site / release.name
        self._directory.mkdir()
        logs = around.logs / release.name
        logs.mkdir(parents=True)
        self.cluster = NodeControlPlane.make(
            self._directory / "cluster", around.programs, logs, emulated_version=release.kubernetes
        )
        self._reader = ApiReader(self.cluster)
        self.containerd = ContainerdNode(
            release, self._directory / "containerd", logs, programs=around.containerd(release.name), driver=driver
        )
        self.kubelet = kubelet.kubelet(self.cluster, self._directory / "kubelet-files", cgroup=around.cgroup)
        self._control_plane: list[ManagedProcess] = []
        plugins = self.cluster.directory / "plugins"
        plugins.mkdir()
        kubectl_plugin.main([str(plugins / "kubectl-inspect-cgpu")])

    @classmethod
    def boot(cls, around: NodeSite, release: ContainerdRelease, driver: DriverMounts) -> Self:
        """A node that is Ready and has its images, in a cluster with nothing in it."""
        node = cls(around, release, driver)
        try:
            node._boot()
        except BaseException:
            node.stop()
            raise
        return node

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill the programs and what runs in containers, and empty the disk: the next node is another machine."""
        self._reader.close()
        self.kubelet.kill()
        self.containerd.kill()
        for process in reversed(self._control_plane):
            process.kill()
        containers.end_all(self._around.cgroup)
        remove_cgroup(self._around.cgroup)
        containers.remove_network()
        kubelet.forget_sockets()
        kubelet.remove_files()
        for folder in LEFT_ON_DISK:
            shutil.rmtree(folder, ignore_errors=True)
        for address in ADDRESSES:
            subprocess.run(["ip", "address", "delete", f"{address}/32", "dev", "lo"], check=True)

    def install(self, shape: str, *further: str) -> None:
        """As the install page says: the manifests as they are, the agent with a runtime class where the driver has one."""
        for each in further:
            self.kubectl("apply", "-k", MANIFESTS / each)
        if self.release.is_driver_everywhere:
            self.kubectl("apply", "-k", MANIFESTS / shape)
            return
        handler = self.release.handler_with_driver
        self.apply(
            {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": handler}}
            | {"handler": handler}
        )
        folder = self._directory / "install"
        folder.mkdir(exist_ok=True)
        patches = [("DaemonSet", "vrampack-agent", "/spec/template/spec/runtimeClassName", handler)]
        if self.release.kubernetes:  # where the image would be of that version
            argument = f"--emulated-version={self.release.kubernetes}"
            patches.append(("Deployment", "vrampack-scheduler", "/spec/template/spec/containers/0/args/-", argument))
        kustomization = {
            "resources": [os.path.relpath(MANIFESTS / shape, folder)],
            "patches": [
                {
                    "target": {"kind": kind, "name": name},
                    "patch": json.dumps([{"op": "add", "path": path, "value": value}]),
                }
                for kind, name, path, value in patches
            ],
        }
        (folder / "kustomization.yaml").write_text(json.dumps(kustomization))
        self.kubectl("apply", "-k", folder)

    def kubectl(
        self,
        *arguments: str | Path,
        input: str | None = None,  # noqa: A002 - named as in subprocess.run
        check: bool = True,
        timeout_seconds: float = KUBECTL_TIMEOUT_SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator; its output is captured as text."""
        done = subprocess.run(
            [self.cluster.programs / "kubectl", *arguments],
            input=input,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
            env=self._users_environment(),
        )
        if check and done.returncode:
            raise RuntimeError(f"kubectl {' '.join(map(str, arguments))}: {done.stderr}")
        return done

    def get(self, *arguments: str) -> Json:
        """`kubectl get` as JSON; None when it is not there."""
        kind, *further = arguments
        if self._reader.can_read(kind):
            return self._reader.read_objects(kind, further)
        done = self.kubectl("get", *arguments, "-o", "json", "--ignore-not-found")
        return json.loads(done.stdout) if done.stdout else None

    def list_objects(self, *arguments: str) -> list[Json]:
        """`kubectl get` of many."""
        return list((self.get(*arguments) or {"items": []})["items"])

    def apply(self, *items: Json) -> None:
        whole = {"apiVersion": "v1", "kind": "List", "items": items}
        self.kubectl("apply", "-f", "-", input=json.dumps(whole))

    def exec(self, pod: str, *command: str, container: str | None = None, namespace: str = "default") -> str:
        """The output of a command inside a container."""
        chosen = [] if container is None else ["-c", container]
        return self.kubectl("exec", "-n", namespace, pod, *chosen, "--", *command).stdout

    def start_exec(self, pod: str, *command: str) -> subprocess.Popen[str]:
        """The same for a command that takes its time; its output is a pipe."""
        kubectl = [str(self.cluster.programs / "kubectl"), "exec", pod, "--", *command]
        return subprocess.Popen(kubectl, stdout=subprocess.PIPE, text=True, env=self._users_environment())

    def clear(self) -> None:
        """Namespace `default` without workloads and pods."""
        self.kubectl("delete", "statefulsets,deployments,replicasets,jobs", "--all", "--cascade=foreground")
        self.kubectl("delete", "pods", "--all", "--now")

    def environment(self, pod: str, *, container: str | None = None, namespace: str = "default") -> dict[str, str]:
        """The variables of the container's first process, not those of a new shell in it."""
        lines = self.exec(pod, "cat", "/proc/1/environ", container=container, namespace=namespace).split("\0")
        return dict(line.split("=", 1) for line in lines if line)

    def wait(self, predicate: Callable[[], T], timeout_seconds: float = 60, *, what: str | Callable[[], str] = "") -> T:
        """The first true answer of `predicate`, or `TimeoutError`."""
        return wait_until(predicate, timeout_seconds=timeout_seconds, what=what, interval_seconds=INTERVAL_SECONDS)

    def wait_ready(self, selector: str, *, namespace: str = "default", timeout_seconds: float = 60) -> None:
        """Every pod of the selector is there and ready."""

        def are_ready() -> bool:
            pods = self.list_objects("pods", "-n", namespace, "-l", selector)
            return bool(pods) and all(has_ready_condition(pod) for pod in pods)

        self.wait(are_ready, timeout_seconds, what=lambda: self.describe(selector, namespace=namespace))

    def describe(self, selector: str, *, namespace: str = "default") -> str:
        return self.kubectl("describe", "pods", "-n", namespace, "-l", selector, check=False).stdout

    def events(self, name: str) -> str:
        """The events of an object of namespace `default`: every reason with its text."""
        found = self.list_objects("events", "-n", "default", "--field-selector", f"involvedObject.name={name}")
        return " / ".join(f"{each['reason']}: {each['message']}" for each in found)

    def is_ready(self) -> bool:
        made = self.get("node", NODE_NAME)
        return made is not None and has_ready_condition(made)

    def kill_kubelet(self) -> None:
        self.kubelet.kill()

    def start_kubelet(self) -> None:
        self.kubelet.start()
        self.wait((kubelet.DEVICE_PLUGINS / "kubelet.sock").exists, what="kubelet serves device plugins")

    def restart_kubelet(self) -> None:
        """SIGKILL, and start: every plugin's socket goes, containers run on."""
        self.kill_kubelet()
        self.start_kubelet()

    def restart_containerd(self) -> None:
        """SIGKILL, and start: the shims hold the containers meanwhile."""
        self.containerd.kill()
        self.containerd.start()

    def agent_pids(self) -> list[int]:
        """Its process's pid on the node; none while kubelet has not restarted its container."""
        return containers.pids_of(AGENT)

    def kill_agent(self) -> int:
        """SIGKILL, whatever it is doing; kubelet starts its container again. Returns its old pid."""
        (pid,) = self.agent_pids()
        os.kill(pid, SIGKILL)
        return pid

    @contextmanager
    def stopped_agent(self) -> Iterator[int]:
        """Inside the block it hangs, so kubelet's calls wait. A test may kill it there, in the middle of a call."""
        (pid,) = self.agent_pids()
        os.kill(pid, SIGSTOP)
        try:
            yield pid
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, SIGCONT)

    def reboot(self) -> None:
        """Simulated: every container and both programs die, sockets go, what is on the disk stays. Then they start."""
        self.kubelet.kill()
        self.containerd.kill()
        containers.end_all(self._around.cgroup)
        remove_cgroup(self._around.cgroup)
        kubelet.make_cgroup(self._around.cgroup)
        kubelet.forget_sockets()
        remake_spec_folder()
        self.containerd.start()
        self.start_kubelet()

    def add_static_pod(self, name: str, pod: Json) -> Path:
        """A pod that no API server has admitted; removing the file deletes it."""
        path = kubelet.static_pods(self._directory / "kubelet-files") / f"{name}.json"
        path.write_text(json.dumps(pod))
        return path

    def _users_environment(self) -> dict[str, str]:
        """A shell of the administrator; the plugin is on PATH, as the manual says."""
        folder = self.cluster.directory
        path = [folder / "plugins", self.cluster.programs, Path(sys.executable).parent, "/usr/bin", "/bin"]
        return {"HOME": str(folder), "KUBECONFIG": str(self.cluster.admin), "PATH": ":".join(map(str, path))}

    def _boot(self) -> None:
        self.containerd.start()
        etcd, apiserver = self.cluster.etcd(), self.cluster.apiserver()
        self._control_plane = [etcd, apiserver]
        etcd.start()
        apiserver.start()
        archives = sorted(self._around.archives.iterdir())
        has_product = any(archive.name == BUILT.name for archive in archives)
        self.containerd.load_images(archives, names={BUILT_NAME: SHIPPED_NAME} if has_product else {})
        apiserver.wait_ready(f"{API_URL}/readyz", ca_file=self.cluster.authority.ca_file)
        for process in (self.cluster.controller_manager(), self.cluster.scheduler()):
            self._control_plane.append(process)
            process.start()
        self.kubelet.start()
        self.wait(self.is_ready, what=lambda: f"the node is ready\n{self.kubelet.log_tail()}")
        account = ("serviceaccount", "default", "-n", "default")
        self.wait(lambda: self.get(*account), what="namespace default takes pods")


def has_ready_condition(item: Json) -> bool:
    """Of a node or a pod."""
    conditions = item.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
