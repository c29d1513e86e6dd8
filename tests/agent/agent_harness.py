"""A whole agent on a kubelet, an API server and a driver that really answer, in one process.

async with agent_harness() as world:
    pod = world.add_bound_pod("a", card=0)
    await world.kubelet.admit(pod)
    started = await world.kubelet.start(pod, "main")
"""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.fakes.cdi_runtime import CdiRuntime, start_cdi_runtime
from tests.fakes.kubelet.kubelet import FakeKubelet
from tests.fakes.kubelet.pods import KubeletPod, kubelet_pod
from tests.fakes.kubelet.scripted_plugin import MEMORY
from tests.support.back_end_rows import make_rows
from tests.support.builders import snapshot_node
from tests.support.scripted_driver import ScriptedDriver, scripted_gpu
from tests.support.simulated_kmod import SimulatedKmod, write_proc
from vrampack.agent.app import Agent
from vrampack.agent.components import AgentOptions
from vrampack.agent.limits.cgroups import CgroupOwner
from vrampack.agent.limits.node_context import NodePaths
from vrampack.agent.limits.preload.backend import PreloadPaths
from vrampack.agent.metrics import AgentMetrics
from vrampack.agent.settings import AgentConfiguration
from vrampack.cards.allocation import allocate_cards
from vrampack.cards.node import Node
from vrampack.cards.records import write_record
from vrampack.cards.request import read_pod_request
from vrampack.kube.client import Api
from vrampack.kube.credentials import load_credentials
from vrampack.kube.objects import PodObject, build_container_specs
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.kubeconfig import write_kubeconfig

NODE = "gpu-0"
CARDS = "vrampack.dev/cards"
V100_MIB = 16130
SPECS = Path(__file__).parent / "cdi" / "specs"
"""CDI specs as NVIDIA's tools make them."""


class AgentHarness:
    """Everything around one agent, and the agent, which may be killed and started again."""

    def __init__(self, api: ApiServer, kubelet: FakeKubelet, driver: ScriptedDriver, folder: Path) -> None:
        self.api = api
        self.kubelet = kubelet
        self.driver = driver
        self.folder = folder
        self.settings: dict[str, Any] = {}
        self.preload = PreloadPaths(folder / "preload", folder / "libvrampack.so", folder / "preload.books")
        self.hook_socket = folder / "no-hook" / "hook.sock"
        self.module = SimulatedKmod()
        self.module.is_loaded = False
        self.cgroups = folder / "cgroup"
        """A v2 tree; `make_cgroup` makes a pod's."""
        self.cgroups.mkdir()
        (self.cgroups / "cgroup.controllers").touch()
        self.proc = write_proc(folder)
        self.cdi_folder = folder / "cdi"
        """The one that runtimes read here; a test makes it. `add_runtime` makes a reader."""
        self.node_proc = folder / "node-proc"
        self.owners: dict[int, CgroupOwner] = {}
        """Whose a process is, by pid."""
        self.runtimes: list[CdiRuntime] = []
        self.agent: Agent
        self._running: asyncio.Task[None] | None = None
        self._client: Api | None = None
        self._lines = _Lines()
        self.log = logging.getLogger("vrampack.agent")
        """At INFO while the harness is open; a test may set another level, which ends with the harness."""
        self._level_before = self.log.level
        self.log.addHandler(self._lines)
        self.log.setLevel(logging.INFO)

    async def close(self) -> None:
        for runtime in self.runtimes:
            await runtime.close()
        self.log.removeHandler(self._lines)
        self.log.setLevel(self._level_before)

    async def add_runtime(
        self, version: str = "containerd://2.1.3", *, name: str = "containerd", has_cdi: bool = True
    ) -> CdiRuntime:
        """A container runtime of this version on the node, beside what a GPU Operator leaves there."""
        self.cdi_folder.mkdir(exist_ok=True)
        (self.folder / "no-cdi").mkdir(exist_ok=True)
        (self.cdi_folder / "management.nvidia.com-gpu.json").write_bytes((SPECS / "management.json").read_bytes())
        runtime = await start_cdi_runtime(self.cdi_folder if has_cdi else self.folder / "no-cdi", name=name)
        self.runtimes.append(runtime)
        self.node_proc.mkdir(exist_ok=True)
        for process in ("self", str(runtime.pid)):
            (self.node_proc / process).unlink(missing_ok=True)
            (self.node_proc / process).symlink_to(f"/proc/{process}")
        system = {"containerRuntimeVersion": version, "kubeletVersion": "v1.36.3"}
        self.api.patch("nodes", NODE, {"status": {"nodeInfo": system}}, is_status=True)
        return runtime

    def add_library(self, driver_version: str = "580.95.05") -> None:
        """A node on which the library can hold limits."""
        self.driver.version = driver_version
        self.preload.shipped.write_bytes(b"a library")
        self.preload.folder.mkdir()

    def load_simulated_module(self, driver_version: str = "580.95.05") -> None:
        """A node on which the kernel module can hold limits."""
        self.driver.version = driver_version
        self.module.is_loaded = True
        self.module.load(driver_version)

    def make_cgroup(self, pod: KubeletPod) -> Path:
        """As kubelet does for a pod that it admitted."""
        folder = self.cgroups / "kubepods" / f"pod{pod.uid}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    async def start_agent(self) -> None:
        """Start it and wait until it is registered."""
        times = len(self.kubelet.history.registrations)
        await self.launch_agent()
        await self.kubelet.registered(MEMORY, times=times + 1)

    async def launch_agent(self) -> None:
        kubeconfig = write_kubeconfig(self.folder, self.api.url)
        self._client = Api(await load_credentials(kubeconfig))
        base = {
            "apiVersion": "vrampack.dev/v1",
            "kind": "AgentConfiguration",
            "listen": {"health": "", "status_socket": ""},
        }
        health = {"check_seconds": 0.1, "recover_after_checks": 2}
        settings = AgentConfiguration.model_validate(
            {
                **base,
                "health": health,
                "kubelet_folder": self.folder,
                "cdi": {"folder": self.cdi_folder},
                **self.settings,
            }
        )
        self.metrics = AgentMetrics("test", node=NODE)
        options = AgentOptions(
            settings,
            "test",
            NODE,
            node_paths=NodePaths(
                self.hook_socket,
                cgroup_mount=self.cgroups,
                proc=self.proc,
                node_proc=self.node_proc,
                cdi_folders=(self.cdi_folder,),
            ),
            back_ends=make_rows(self.module, self.preload),
            find_process_owner=self.owners.get,
        )
        self.agent = Agent(options, self._client, self.metrics, self.driver)
        self._running = asyncio.create_task(self.agent.run())

    async def kill_agent(self) -> None:
        """Like kill -9, as far as one process can simulate it: no peer is told anything."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        if self._client is not None:
            await self._client.close()
        self._running = self._client = None

    async def stop_agent(self) -> None:
        """Like SIGTERM: everything is withdrawn in order."""
        self.agent.stop()
        if self._running is not None:
            async with asyncio.timeout(10):
                await self._running
        await self.kill_agent()

    async def has_ended(self, *, seconds: float = 5) -> bool:
        """Whether the agent ends by itself within that time."""
        if self._running is not None:
            await asyncio.wait([self._running], timeout=seconds)
        return not self.is_running

    @property
    def is_running(self) -> bool:
        return self._running is not None and not self._running.done()

    @property
    def log_text(self) -> str:
        """What the agent has logged so far."""
        return "\n".join(self._lines.said)

    def add_bound_pod(
        self,
        name: str,
        *,
        card: int = 0,
        units: int | Mapping[str, int] = 4,
        room: Node | None = None,
        **fields: Any,  # noqa: ANN401 - the builder's own
    ) -> KubeletPod:
        """A pod that the extender bound to one card of this node; kubelet does not know it yet."""
        pod = kubelet_pod(name, units=units, **fields)
        pod.spec["spec"]["nodeName"] = NODE
        pod.annotations.update(self.records_of(pod, [card], room))
        pod.spec["metadata"].setdefault("ownerReferences", [{"kind": "ReplicaSet", "controller": True, "name": "r"}])
        self.api.restore({"apiVersion": "v1", "kind": "Pod", **pod.manifest()})
        return pod

    def records_of(self, pod: KubeletPod, cards: Sequence[int], room: Node | None = None) -> dict[str, str]:
        """What the Binding of this pod to these cards carries."""
        return records_for(pod, room or self.read_node(), cards)

    def read_node(self) -> Node:
        gpus = self.driver.present
        return snapshot_node(
            NODE, units=[gpu.memory_mib // 1024 for gpu in gpus], memory_mib=[gpu.memory_mib for gpu in gpus]
        )

    def read_annotation(self, key: str = CARDS) -> str | None:
        """An annotation of the node."""
        annotations: Mapping[str, str] = self.api.get("nodes", NODE)["metadata"].get("annotations") or {}
        return annotations.get(key)

    def patch_node_status(self, capacity: Mapping[str, str], *, allocatable: Mapping[str, str] | None = None) -> None:
        """What kubelet reports of the node's resources, from now on."""
        status = {"capacity": dict(capacity), "allocatable": dict(capacity if allocatable is None else allocatable)}
        self.api.patch("nodes", NODE, {"status": status}, is_status=True)

    def read_card_health(self) -> dict[str, bool]:
        """By uuid, as the node publishes it."""
        return {card["uuid"]: card["healthy"] for card in json.loads(self.read_annotation() or '{"cards":[]}')["cards"]}

    async def wait_until(self, condition: Callable[[], bool], *, seconds: float = 10) -> None:
        """Wait until a condition on the world holds."""
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - the API server's store sends no signal
                await asyncio.sleep(0.01)

    def read_metric(self, name: str, **labels: str) -> float:
        """A sample of the agent's metrics."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


def records_for(pod: KubeletPod, node: Node, cards: Sequence[int]) -> dict[str, str]:
    """What the Binding of this pod to these cards of the node carries, by index."""
    spec = msgspec.json.decode(json.dumps(pod.spec), type=PodObject).spec
    ask = read_pod_request(
        build_container_specs(spec, MEMORY), pod.spec["metadata"].get("labels") or {}, {}, resource=MEMORY
    )
    if ask is None:
        raise ValueError("the pod asks for nothing")
    chosen = [each for each in node.cards if each.index in cards]
    return write_record(allocate_cards(node, chosen, ask), ask, node, now_ns=1)


class _Lines(logging.Handler):
    """Keeps the log of one world."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@asynccontextmanager
async def agent_harness(*gpus: int, seed: int = 1, starts: bool = True, **settings: Any) -> AsyncIterator[AgentHarness]:  # noqa: ANN401 - a document's values
    """A node with such cards (MiB; one V100 by default) and, unless `starts` is False, a registered agent."""
    cards = [scripted_gpu(place, memory_mib=mib) for place, mib in enumerate(gpus or (V100_MIB,))]
    with tempfile.TemporaryDirectory(prefix="agent") as name:
        async with ApiServer() as api, FakeKubelet(Path(name), seed=seed) as kubelet:
            api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
            world = AgentHarness(api, kubelet, ScriptedDriver(*cards), Path(name))
            world.settings = settings
            try:
                if starts:
                    await world.start_agent()
                yield world
            finally:
                await world.kill_agent()
                await world.close()
