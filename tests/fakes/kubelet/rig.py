"""A kubelet with a registered scripted plugin in one folder, and the answers of pod-resources."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from tests.fakes.kubelet.endpoints import Timeouts
from tests.fakes.kubelet.kubelet import FakeKubelet
from tests.fakes.kubelet.scripted_plugin import MEMORY, ScriptedPlugin
from vrampack.agent.kubelet.generated import podresources_pb2 as wire
from vrampack.agent.kubelet.generated.podresources_pb2_grpc import PodResourcesListerStub

IDS = tuple(f"GPU-{card}::{unit}" for card in range(2) for unit in range(8))


@dataclass(frozen=True, slots=True)
class KubeletRig:
    """Both of them; `plugin_named` makes another plugin of the same node."""

    kubelet: FakeKubelet
    plugin: ScriptedPlugin

    def plugin_named(self, name: str, ids: Iterable[str] = IDS) -> ScriptedPlugin:
        return ScriptedPlugin(self.kubelet.plugins_folder, ids, name=name)

    async def listed(self) -> dict[str, dict[str, set[str]]]:
        """Ids by pod and container."""
        async with grpc.aio.insecure_channel(f"unix:{self.kubelet.pod_resources_socket}") as channel:
            answer: wire.ListPodResourcesResponse = await PodResourcesListerStub(channel).List(
                wire.ListPodResourcesRequest(), timeout=5
            )
        return {
            pod.name: {
                container.name: {device for entry in container.devices for device in entry.device_ids}
                for container in pod.containers
            }
            for pod in answer.pod_resources
        }


@asynccontextmanager
async def kubelet_rig(*, seed: int = 1, timeouts: Timeouts | None = None) -> AsyncIterator[KubeletRig]:
    """Two cards of eight units, in a folder whose name is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="kubelet") as name:
        kubelet = FakeKubelet(Path(name), seed=seed, timeouts=timeouts)
        async with kubelet, ScriptedPlugin(kubelet.plugins_folder, IDS) as plugin:
            await plugin.register()
            await kubelet.registered(MEMORY)
            yield KubeletRig(kubelet, plugin)
