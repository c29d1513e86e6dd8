"""A release of the chart on the node: the commands of one Helm, and what to wait for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.node.containerd_release import NVIDIA_HANDLER
from tests.node.controlplane import NODE_NAME
from tests.node.node import NAMESPACE, LiveNode
from tests.support.chart.helm import ADOPTS, change_release
from tests.support.chart.rendering import value_flags

SCHEDULER, AGENT = "vrampack-scheduler", "vrampack-agent"
WORKLOADS = (f"deployment/{SCHEDULER}", f"daemonset/{AGENT}")
ROLLOUT_SECONDS = 240


@dataclass(frozen=True, slots=True)
class NodeChart:
    """The release of one Helm on the node."""

    node: LiveNode
    by: str
    home: Path

    def change(self, command: str, *arguments: str | Path) -> None:
        cluster = self.node.cluster
        helm = cluster.programs / self.by
        change_release(helm, cluster.admin, self.home, command, *arguments, "--namespace", NAMESPACE)

    def set_up(self, chart: Path, *arguments: str) -> None:
        """Install it, over what kubectl has installed if something is there, or upgrade it."""
        values = value_flags(["second-scheduler", "runtime-class"])
        self.change("upgrade", chart, "--install", *ADOPTS[self.by], *values, *arguments)

    def wait_rolled_out(self) -> None:
        """All pods are those of the release as it is now, and ready."""
        for each in WORKLOADS:
            status = ("rollout", "status", each, "-n", NAMESPACE, f"--timeout={ROLLOUT_SECONDS}s")
            self.node.kubectl(*status, timeout_seconds=ROLLOUT_SECONDS + 10)

    def list_images(self) -> set[str]:
        """Of our containers that run."""
        pods = self.node.list_objects("pods", "-n", NAMESPACE, "-l", f"app.kubernetes.io/name in ({SCHEDULER},{AGENT})")
        made = [each for pod in pods for part in ("containers", "initContainers") for each in pod["spec"].get(part, [])]
        return {each["image"] for each in made if "/vrampack:" in each["image"]}

    def wait_until_images_are(self, *names: str) -> None:
        """A rollout can succeed before the pods that it replaced have ended."""
        self.node.wait(lambda: self.list_images() == {*names}, 120, what=lambda: f"images {self.list_images()}")


def prepare_namespace(node: LiveNode) -> None:
    """What is there before the chart: its namespace, the runtime class of NVIDIA's tools, and the label of a GPU node."""
    label = {"pod-security.kubernetes.io/enforce": "privileged"}
    runtime_class = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": NVIDIA_HANDLER}}
    node.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": label}},
        runtime_class | {"handler": NVIDIA_HANDLER},
    )
    node.kubectl("label", "node", NODE_NAME, "nvidia.com/gpu.present=true", "--overwrite")
