"""What a container got by CDI: kubelet's checkpoint has the name, the container itself the result."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

from tests.node.api_reader import Json
from tests.node.kubelet import DEVICE_PLUGINS, POD_LOGS, POD_RESOURCES
from tests.node.node import LiveNode
from tests.node.nvidia_spec import SPEC_FOLDER
from tests.node.pods import RESOURCE, VARIABLES, annotated
from vrampack.agent.kubelet.generated.deviceplugin_pb2 import ContainerAllocateResponse
from vrampack.agent.kubelet.podresources import PodResourcesClient

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
TASKS = Path("/run/containerd/io.containerd.runtime.v2.task/k8s.io")
LOGS_CARDS = ["sh", "-c", "echo cards:$(cd /dev; ls -d nvidia[0-9]*); "]


def assert_cards_injected(node: LiveNode, name: str, cards: dict[str, int]) -> None:
    """Each container that asks has the nodes of its own cards and no other's, and the limits of its annotations.

    `cards`: the minor number of each card that is on the node, by uuid.
    """
    pod = node.get("pod", name)
    for container in pod["spec"]["containers"]:
        if RESOURCE in container.get("resources", {}).get("limits", {}):
            told = annotated(pod, container["name"])
            seen = node.environment(name, container=container["name"])
            assert {variable: seen.get(variable) for variable in VARIABLES} == told | {VISIBLE: "void"}
            own = {f"nvidia{cards[uuid]}" for uuid in told[VISIBLE].split(",")}
            assert list_card_nodes(node, name, container=container["name"]) == own


def list_card_nodes(node: LiveNode, pod: str, *, container: str | None = None) -> set[str]:
    """The nodes of cards in the container, `nvidia0`."""
    found = node.exec(pod, "ls", "/dev", container=container).split()
    return {name for name in found if re.fullmatch(r"nvidia[0-9]+", name)}


def list_device_rules(node: LiveNode, pod: str, major: int) -> dict[int | None, str]:
    """What the OCI spec of the pod's only container allows with devices of this number: access by minor, None for all of them.

    It is what systemd is told as `DeviceAllow`, and puts in force again at each `daemon-reload`.
    """
    (status,) = node.get("pod", pod)["status"]["containerStatuses"]
    bundle = TASKS / status["containerID"].removeprefix("containerd://")
    spec = json.loads((bundle / "config.json").read_text())
    rules = [rule for rule in spec["linux"]["resources"]["devices"] if rule["allow"] and rule.get("major") == major]
    return {rule.get("minor"): rule["access"] for rule in rules}


def list_answers(node: LiveNode, name: str) -> dict[str, ContainerAllocateResponse]:
    """What `Allocate` answered for the containers of the pod, by container, as kubelet repeats it at every start."""
    uid = node.get("pod", name)["metadata"]["uid"]
    client = PodResourcesClient(POD_RESOURCES, DEVICE_PLUGINS / "kubelet_internal_checkpoint", resource=RESOURCE)
    entries = asyncio.run(client.read_checkpoint())
    return {
        each.container: ContainerAllocateResponse.FromString(each.answer) for each in entries if each.pod_uid == uid
    }


def list_own_specs() -> list[Path]:
    """The specs of containers that are about to start."""
    return sorted(SPEC_FOLDER.glob("vrampack-*.json"))


def log_own_cards(pod: Json) -> Json:
    """The same pod, or the pods of the same set: each of its containers logs the nodes of its cards when it starts."""
    spec = pod["spec"].get("template", pod)["spec"]
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        container["command"] = [*LOGS_CARDS[:2], LOGS_CARDS[2] + container["command"][2]]
    return pod


def read_logged_cards(name: str) -> list[list[str]]:
    """The nodes of cards that each start of a container of the pod had, also of earlier pods of its name; the last one last."""
    logs = sorted(POD_LOGS.glob(f"default_{name}_*/*/*.log"), key=lambda log: log.stat().st_mtime_ns)
    told = [re.findall(r" F cards:(.*)$", log.read_text(), re.MULTILINE) for log in logs]
    return [line.split() for lines in told for line in lines]
