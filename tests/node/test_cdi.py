"""What the runtimes of this suite do with CDI: a device plugin names a device, and a specification describes it.

Nothing of ours is on the node: the plugin is a scripted one, and the specification is written by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.kubelet.scripted_plugin import ScriptedPlugin
from tests.node.containerd_release import BUILT_1_7, BUILT_2, DEBIAN_1_6
from tests.node.controlplane import NODE_NAME
from tests.node.kubelet import DEVICE_PLUGINS
from tests.node.node import LiveNode, has_ready_condition
from tests.node.pods import a_pod
from tests.node.served_plugin import serve_plugin

SPECIFICATIONS = Path("/var/run/cdi")
RESOURCE = "example.com/described"
KIND, DEVICE = "example.com/card", "one"
VARIABLE = "FROM_CDI"
MAJOR, MINOR = "10", "229"
"""/dev/fuse, which no container may open by itself."""
SPECIFICATION = {
    "cdiVersion": "0.5.0",  # the first that knows `hostPath`
    "kind": KIND,
    "devices": [
        {
            "name": DEVICE,
            "containerEdits": {
                "env": [f"{VARIABLE}=yes"],
                "deviceNodes": [{"path": "/dev/described", "hostPath": "/dev/fuse", "permissions": "rw"}],
            },
        }
    ],
}


@pytest.fixture
def described_node(bare_node: LiveNode) -> Iterator[LiveNode]:
    """A node whose kubelet has one device; `Allocate` answers its name for CDI. No specification is there."""
    plugin = ScriptedPlugin(DEVICE_PLUGINS, ["only"], name="described.sock", resource=RESOURCE)
    plugin.options.pre_start_required = plugin.options.get_preferred_allocation_available = False
    plugin.cdi_devices = [f"{KIND}={DEVICE}"]
    SPECIFICATIONS.mkdir(exist_ok=True)
    with serve_plugin(plugin):
        bare_node.wait(
            lambda: bare_node.get("node", NODE_NAME)["status"]["allocatable"].get(RESOURCE) == "1",
            what="the plugin's device is offered",
        )
        yield bare_node
        bare_node.clear()
    (SPECIFICATIONS / "described.json").unlink(missing_ok=True)


def write_specification() -> None:
    """By renaming within the folder: no reader sees half of it."""
    unfinished = SPECIFICATIONS / ".described.json"
    unfinished.write_text(json.dumps(SPECIFICATION))
    unfinished.rename(SPECIFICATIONS / "described.json")


def a_pod_with_device(name: str) -> dict[str, Any]:
    """Its variable says no where the specification says yes."""
    pod = a_pod(name, main=0)
    (container,) = pod["spec"]["containers"]
    container |= {"resources": {"limits": {RESOURCE: "1"}}, "env": [{"name": VARIABLE, "value": "no"}]}
    return pod


def start(node: LiveNode, pod: dict[str, Any]) -> None:
    node.apply(pod)
    name = pod["metadata"]["name"]
    node.wait(lambda: has_ready_condition(node.get("pod", name)), what=lambda: node.describe(""))


def can_open(node: LiveNode, pod: str, path: str) -> bool:
    """Whether a process of the container may, by the file's mode and the control group of devices."""
    return node.kubectl("exec", pod, "--", "sh", "-c", f"exec 3<>{path}", check=False).returncode == 0


@pytest.mark.containerd(BUILT_2)
def test_a_specification_reaches_the_container_of_its_device(described_node: LiveNode) -> None:
    """Its variable wins over the pod's, and its device can be opened, which a container without it cannot do."""
    write_specification()
    start(described_node, a_pod_with_device("with"))
    assert described_node.environment("with")[VARIABLE] == "yes"
    assert can_open(described_node, "with", "/dev/described")

    start(described_node, a_pod("without", main=0))
    assert VARIABLE not in described_node.environment("without")
    described_node.exec("without", "mknod", "/tmp/described", "c", MAJOR, MINOR)
    assert not can_open(described_node, "without", "/tmp/described")


@pytest.mark.containerd(BUILT_2)
def test_a_container_waits_for_the_specification_of_its_device(described_node: LiveNode) -> None:
    """Without one it is not created, and kubelet asks again until there is one."""
    described_node.apply(a_pod_with_device("early"))
    refusal = f"unresolvable CDI devices {KIND}={DEVICE}"
    described_node.wait(lambda: refusal in described_node.events("early"), what=lambda: described_node.events("early"))
    assert not has_ready_condition(described_node.get("pod", "early"))

    write_specification()
    described_node.wait(
        lambda: has_ready_condition(described_node.get("pod", "early")), what=lambda: described_node.describe("")
    )
    assert described_node.environment("early")[VARIABLE] == "yes"


@pytest.mark.containerd(DEBIAN_1_6, BUILT_1_7)
def test_a_runtime_without_cdi_ignores_the_device_and_starts_the_container(described_node: LiveNode) -> None:
    """Neither event nor error: where no specification is there at all, the container starts just the same."""
    start(described_node, a_pod_with_device("ignored"))
    assert described_node.environment("ignored")[VARIABLE] == "no"
    described_node.kubectl("delete", "pod", "ignored", "--now")

    write_specification()
    start(described_node, a_pod_with_device("ignored"))
    assert described_node.environment("ignored")[VARIABLE] == "no"
    assert described_node.kubectl("exec", "ignored", "--", "test", "-e", "/dev/described", check=False).returncode == 1
