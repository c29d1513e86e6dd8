"""What else tells a runtime about devices, tried with NVIDIA's own programs of toolkit 1.20: runtime in mode `cdi`, NRI plugin.

Each attack is made twice: without any admission policy, to show what the node does by itself, and with those that are
installed. An attack that gets a card the first time shows that the program is at work, and that only a policy stops it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.fakes.nvml.profiles import PROFILES
from tests.node.api_reader import Json
from tests.node.conftest import SHAPE
from tests.node.containerd_release import BUILT_2
from tests.node.controlplane import NODE_NAME
from tests.node.gpus import read_allocatable, with_gpus
from tests.node.injected_cards import list_answers
from tests.node.node import LiveNode, has_ready_condition
from tests.node.node_site import NodeSite
from tests.node.nvidia_spec import SPEC_FOLDER
from tests.node.nvidia_toolkit import CDI_RUNTIME, NRI_PLUGIN
from tests.node.pods import a_pod
from tests.support.manifests import MANIFESTS
from tests.support.processes import ManagedProcess

pytestmark = [pytest.mark.containerd(BUILT_2), pytest.mark.timeout(300)]

CLASS = "nvidia-cdi"
TENANT = "tenant"
NRI_SOCKET = Path("/run/nri/nri.sock")
VICTIM = "victim"
LAST_CARD = PROFILES["v100x8"][-1]
ALL = {f"nvidia{gpu.minor}" for gpu in PROFILES["v100x8"]}
THE_CARD = f"nvidia.com/gpu={LAST_CARD.uuid}"
ITS_NODE = {f"nvidia{LAST_CARD.minor}"}
VICTIMS = "vrampack.dev/card=NAME"
"""The CDI device of another pod, which a tenant cannot know; here it is told."""
UNKNOWN = "unresolvable CDI devices vrampack.dev/card="
POLICIES = "validatingadmissionpolicybindings,mutatingadmissionpolicybindings"
VOID = "admission/void"


@dataclass(frozen=True, slots=True)
class Attack:
    """One pod. `gets`: the cards in its container where no policy is, or part of why it does not start."""

    gets: set[str] | str
    asks: int = 0
    annotations: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    runtime_class: str = ""
    refusal: str = ""
    """What the API server answers with the policies installed; empty: only `void` concerns it."""

    def build_pod(self, name: str, device: str) -> Json:
        made = a_pod(name, main=self.asks)
        made["metadata"] |= {"namespace": TENANT}
        made["metadata"]["annotations"] = {
            key: value.replace(VICTIMS, device) for key, value in self.annotations.items()
        }
        (container,) = made["spec"]["containers"]
        container["env"] = [{"name": key, "value": value.replace(VICTIMS, device)} for key, value in self.env.items()]
        if self.runtime_class:
            made["spec"]["runtimeClassName"] = self.runtime_class
        if self.asks:
            made["spec"]["schedulerName"] = "vrampack"
        return made


OWN = "its own"
OF_ALL, OF_ONE, OF_RUNTIME = "nvidia.cdi.k8s.io", "nvidia.cdi.k8s.io/container.main", "cdi.k8s.io/any"
PAST_THE_SCHEDULER = "names devices that the scheduler did not choose"
ATTACKS = {
    "nri": Attack(ITS_NODE, annotations={OF_ONE: THE_CARD}, refusal=f"'{OF_ONE}' {PAST_THE_SCHEDULER}"),
    "nri-pod": Attack(ITS_NODE, annotations={OF_ALL: THE_CARD}, refusal=f"'{OF_ALL}' {PAST_THE_SCHEDULER}"),
    "nri-victims": Attack(UNKNOWN, annotations={OF_ONE: VICTIMS}, refusal=f"'{OF_ONE}' {PAST_THE_SCHEDULER}"),
    "nri-asking": Attack({OWN, *ITS_NODE}, asks=2, annotations={OF_ONE: THE_CARD}, refusal=f"'{OF_ONE}'"),
    "cdi-annotation": Attack(set(), annotations={OF_RUNTIME: THE_CARD}, refusal=f"'{OF_RUNTIME}' {PAST_THE_SCHEDULER}"),
    "cdi-annotation-class": Attack(
        set(),
        annotations={OF_RUNTIME: THE_CARD},
        runtime_class=CLASS,
        refusal=f"'{OF_RUNTIME}' {PAST_THE_SCHEDULER}",
    ),
    "env": Attack(set(), env={"NVIDIA_VISIBLE_DEVICES": "all"}),
    "env-class": Attack(ALL, env={"NVIDIA_VISIBLE_DEVICES": "all"}, runtime_class=CLASS),
    "env-cuda": Attack(ALL, env={"CUDA_VERSION": "12.4.1"}, runtime_class=CLASS),
    "env-victims": Attack(UNKNOWN, env={"NVIDIA_VISIBLE_DEVICES": VICTIMS}, runtime_class=CLASS),
    "env-asking": Attack(
        {OWN},
        asks=2,
        env={"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all"},
        refusal="NVIDIA_VISIBLE_DEVICES",
    ),
    "class-asking": Attack(
        f"runtime class {CLASS} may bypass what enforces its limit",
        asks=2,
        runtime_class=CLASS,
        refusal=f"spec.runtimeClassName: '{CLASS}'",
    ),
}


@pytest.fixture(scope="module")
def attacked(node: LiveNode, cards: FakeNvmlMachine, around: NodeSite) -> Iterator[LiveNode]:
    """A node with eight cards, NVIDIA's runtime behind a class of its own, and its NRI plugin."""
    node.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}},
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": CLASS}, "handler": CLASS},
    )
    node.containerd.add_handler(CLASS, around.toolkit / CDI_RUNTIME)
    node.restart_containerd()
    plugin = ManagedProcess(NRI_PLUGIN, [around.toolkit / NRI_PLUGIN, NRI_SOCKET], directory=around.logs)
    with with_gpus(node, cards, PROFILES["v100x8"]):
        _write_device_all()
        plugin.start()
        node.wait(lambda: "msg=started" in plugin.log_tail(), what=plugin.log_tail)
        account = ("serviceaccount", "default", "-n", TENANT)
        node.wait(lambda: node.get(*account), what="the namespace takes pods")
        yield node
        node.kubectl("delete", "namespace", TENANT)
        plugin.stop()


@pytest.fixture
def unguarded(attacked: LiveNode) -> Iterator[LiveNode]:
    """Without any policy of ours."""
    attacked.kubectl("delete", POLICIES, "-l", "app.kubernetes.io/part-of=vrampack")
    yield attacked
    attacked.kubectl("delete", "pods", "-n", TENANT, "--all", "--now")
    attacked.install(SHAPE)


def test_without_policies_the_node_refuses_only_containers_that_ask(unguarded: LiveNode) -> None:
    device = _start_victim(unguarded)
    pods = {name: attack.build_pod(name, device) for name, attack in ATTACKS.items()}
    # A policy that was taken away is in force for a moment.
    unguarded.wait(
        lambda: not unguarded.kubectl("apply", "-f", "-", input=_as_list(pods), check=False).returncode,
        what="no policy is in force",
    )
    found = {name: _read_outcome(unguarded, name, attack) for name, attack in ATTACKS.items()}
    assert found == {name: attack.gets for name, attack in ATTACKS.items()}
    capabilities = unguarded.environment("env-asking", namespace=TENANT)["NVIDIA_DRIVER_CAPABILITIES"]
    assert capabilities == "compute,utility"


def test_with_policies_attacks_are_refused_or_see_no_card(attacked: LiveNode) -> None:
    for name, attack in ATTACKS.items():
        if attack.refusal:
            attacked.wait(partial(_is_refused, attacked, name, attack), what=f"{name} is refused")
    left = {name: attack for name, attack in ATTACKS.items() if not attack.refusal}
    pods = {name: attack.build_pod(name, VICTIMS) for name, attack in left.items()}
    attacked.kubectl("apply", "-k", MANIFESTS / VOID)
    try:
        attacked.wait(lambda: _is_void(attacked, pods), what="void is in force")
        attacked.kubectl("apply", "-f", "-", input=_as_list(pods))
        found = {name: _read_outcome(attacked, name, attack) for name, attack in left.items()}
        assert found == {name: set() for name in left}
    finally:
        attacked.kubectl("delete", "-k", MANIFESTS / VOID)


def test_a_dra_driver_with_our_card_withdraws_the_offer(attacked: LiveNode) -> None:
    """Its ResourceSlice, as the API server has it; the agent may list it. The next agent looks at once."""
    device = {"name": "gpu-7", "attributes": {"uuid": {"string": LAST_CARD.uuid}}}
    pool = {"name": NODE_NAME, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": NODE_NAME, "pool": pool, "devices": [device]}
    made = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "rival"}, "spec": spec}
    attacked.apply(made)
    attacked.kill_agent()
    told = f"NVIDIA's DRA driver offers card {LAST_CARD.uuid} of this node as well"
    attacked.wait(lambda: told in attacked.events(NODE_NAME), what=lambda: attacked.events(NODE_NAME))
    attacked.wait(lambda: read_allocatable(attacked) == 0, what="nothing is offered")
    attacked.kubectl("delete", "resourceslices", "rival")


def _is_refused(node: LiveNode, name: str, attack: Attack) -> bool:
    pod = _as_list({name: attack.build_pod(name, VICTIMS)})
    return attack.refusal in node.kubectl("create", "--dry-run=server", "-f", "-", input=pod, check=False).stderr


def _is_void(node: LiveNode, pods: Mapping[str, Json]) -> bool:
    """Whether each of these pods would get the word, whatever it asks for, and no other entry of that name."""
    told = node.kubectl("apply", "--dry-run=server", "-o", "json", "-f", "-", input=_as_list(pods)).stdout
    containers = [each["spec"]["containers"][0] for each in json.loads(told)["items"]]
    name = "NVIDIA_VISIBLE_DEVICES"
    entries = [[entry for entry in each["env"] if entry["name"] == name] for each in containers]
    return all(each == [{"name": name, "value": "void"}] for each in entries)


def _start_victim(node: LiveNode) -> str:
    """A pod of somebody else's with a card; its CDI device, whose spec is gone by then."""
    pod = a_pod(VICTIM, main=4)
    pod["spec"]["schedulerName"] = "vrampack"
    node.apply(pod)
    node.wait(lambda: has_ready_condition(node.get("pod", VICTIM)), what=lambda: node.describe(""))
    node.wait(lambda: not list(SPEC_FOLDER.glob("vrampack-*.json")), what="its spec is gone")
    return str(list_answers(node, VICTIM)["main"].cdi_devices[0].name)


def _read_outcome(node: LiveNode, name: str, attack: Attack) -> set[str] | str:
    """The cards of its container, its record's own as `OWN`; or the part of its events that was expected."""

    def read_state() -> set[str] | str | None:
        pod = node.get("pod", name, "-n", TENANT)
        if has_ready_condition(pod):
            nodes = node.exec(name, "ls", "/dev", namespace=TENANT).split()
            seen = {each for each in nodes if each in ALL}
            own = _read_own_nodes(pod)
            return {OWN if each in own else each for each in seen}
        told = node.list_objects("events", "-n", TENANT, "--field-selector", f"involvedObject.name={name}")
        texts = " / ".join(each["message"] for each in told)
        return attack.gets if isinstance(attack.gets, str) and attack.gets in texts else None

    found = node.wait(
        lambda: (seen := read_state()) is not None and [seen], what=lambda: node.describe("", namespace=TENANT)
    )
    assert isinstance(found, list)
    return found[0]


def _read_own_nodes(pod: Json) -> set[str]:
    told = pod["metadata"].get("annotations", {}).get("visible-devices.vrampack.dev/main", "")
    return {f"nvidia{gpu.minor}" for gpu in PROFILES["v100x8"] if gpu.uuid in told.split(",")}


def _write_device_all() -> None:
    """As NVIDIA's tools write it beside the single cards."""
    document = json.loads((SPEC_FOLDER / "nvidia.json").read_text())
    nodes = [each for device in document["devices"] for each in device["containerEdits"]["deviceNodes"]]
    document["devices"].append({"name": "all", "containerEdits": {"deviceNodes": nodes}})
    unfinished = SPEC_FOLDER / ".nvidia.json"
    unfinished.write_text(json.dumps(document))
    unfinished.rename(SPEC_FOLDER / "nvidia.json")


def _as_list(pods: Mapping[str, Json]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(pods.values())})
