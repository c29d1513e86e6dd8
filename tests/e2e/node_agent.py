"""A whole agent on the real API server, with a kubelet, a driver and a kernel module that are simulated beside it."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.fakes.kubelet.kubelet import FakeKubelet
from tests.fakes.kubelet.pods import KubeletPod
from tests.fakes.kubelet.scripted_plugin import MEMORY
from tests.fakes.kubelet.starting import StartedContainer, WaitingContainer
from tests.support.back_end_rows import make_rows
from tests.support.control_plane.cluster import ControlPlane
from tests.support.scripted_driver import ScriptedDriver, scripted_gpu
from tests.support.simulated_kmod import SimulatedKmod, write_proc
from vrampack.agent.app import Agent
from vrampack.agent.components import AgentOptions
from vrampack.agent.limits.node_context import NodePaths
from vrampack.agent.limits.preload.backend import PreloadPaths
from vrampack.agent.metrics import AgentMetrics
from vrampack.agent.settings import AgentConfiguration
from vrampack.cards import well_known
from vrampack.kube.client import Api
from vrampack.kube.credentials import load_credentials

DRIVER = "580.95.05"
NO_LIMITS: Mapping[int, int] = {}


class NodeAgent:
    """Its cards are limited by the module."""

    def __init__(
        self, cluster: ControlPlane, name: str, kubelet: FakeKubelet, module: SimulatedKmod, cgroups: Path
    ) -> None:
        self._cluster = cluster
        self._kubelet = kubelet
        self._cgroups = cgroups
        self.name = name
        self.module = module

    def read_annotation(self, key: str = well_known.NODE_CARDS) -> str | None:
        node = self._cluster.request_ok("GET", f"/api/v1/nodes/{self.name}")
        annotations: dict[str, str] = node["metadata"].get("annotations") or {}
        return annotations.get(key)

    async def start_pod(self, path: str) -> list[StartedContainer | WaitingContainer]:
        """Start the containers of a pod that was bound here, one after the other."""
        pod = KubeletPod(await asyncio.to_thread(self._cluster.request_ok, "GET", path))
        (self._cgroups / "kubepods" / f"pod{pod.uid}").mkdir(parents=True)
        assert await self._kubelet.admit(pod), pod.message
        return [await self._kubelet.try_start(pod, container.name) for container in pod.containers]


@asynccontextmanager
async def run_agent(
    cluster: ControlPlane, name: str, *, cards_mib: tuple[int, ...], max_instances: Mapping[int, int] = NO_LIMITS
) -> AsyncIterator[NodeAgent]:
    """A node with such cards and a registered agent, which acts as administrator.

    `max_instances`, by card, is what people wrote to the module's `max_inst`.
    """
    allocatable = {MEMORY: str(sum(mib // 1024 for mib in cards_mib))}
    await asyncio.to_thread(cluster.add_node, name, allocatable=allocatable)
    module = SimulatedKmod(DRIVER)
    module.most |= max_instances
    driver = ScriptedDriver(*[scripted_gpu(place, memory_mib=mib) for place, mib in enumerate(cards_mib)])
    driver.version = DRIVER
    client = Api(await load_credentials(cluster.admin_kubeconfig))
    # A short path: the names of sockets have at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="agent") as folder:
        async with FakeKubelet(Path(folder)) as kubelet:
            options = _build_options(name, module, Path(folder))
            agent = Agent(options, client, AgentMetrics("test", node=name), driver)
            running = asyncio.create_task(agent.run())
            try:
                await kubelet.registered(MEMORY)
                node = NodeAgent(cluster, name, kubelet, module, options.node_paths.cgroup_mount)
                await asyncio.to_thread(
                    cluster.wait_until, lambda: _is_published(node), what="the agent published its cards"
                )
                yield node
            finally:
                agent.stop()
                await running
                await client.close()


def _build_options(name: str, module: SimulatedKmod, folder: Path) -> AgentOptions:
    """With the module, on cgroup v2, and without a runtime that reads CDI specs."""
    cgroups, cdi = folder / "cgroup", folder / "cdi"
    cgroups.mkdir()
    (cgroups / "cgroup.controllers").touch()
    settings = AgentConfiguration.model_validate(
        {
            "apiVersion": "vrampack.dev/v1",
            "kind": "AgentConfiguration",
            "listen": {"health": "", "status_socket": ""},
            "kubelet_folder": folder,
            "cdi": {"folder": cdi},
            "enforcement": "kmod",
        }
    )
    hook, proc, node_proc = folder / "no-hook" / "hook.sock", write_proc(folder), folder / "node-proc"
    paths = NodePaths(hook, cgroup_mount=cgroups, proc=proc, node_proc=node_proc, cdi_folders=(cdi,))
    preload = PreloadPaths(folder / "preload", folder / "libvrampack.so", folder / "preload.books")
    return AgentOptions(settings, "test", name, node_paths=paths, back_ends=make_rows(module, preload))


def _is_published(node: NodeAgent) -> bool:
    text = node.read_annotation()
    return text is not None and all(card["healthy"] for card in json.loads(text)["cards"])
