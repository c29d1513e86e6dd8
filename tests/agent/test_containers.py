"""What a container gets: exactly the card that its pod's annotation names, or it does not start."""

from __future__ import annotations

import json

from tests.agent.agent_harness import agent_harness
from tests.fakes.kubelet.scripted_plugin import MEMORY


async def test_two_pods_share_a_card_and_each_gets_its_own_limit() -> None:
    """16130 MiB are 15 units; 4 of them are floor(16130 * 4 / 15) = 4301 MiB."""
    async with agent_harness() as world:
        assert json.loads(world.read_annotation() or "")["cards"][0] | {"model": ""} == {
            "uuid": "GPU-0", "index": 0, "model": "", "memory_mib": 16130, "units": 15, "healthy": True,
            "numa": None, "mig_parent": None,
        }  # fmt: skip
        assert world.kubelet.allocatable(MEMORY) == 15
        for name in ("a", "b"):
            pod = world.add_bound_pod(name)
            assert await world.kubelet.admit(pod)
            started = await world.kubelet.start(pod, "main")
            assert started.env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"
            assert started.env["NVIDIA_GPU_MEMORY_LIMIT"] == "4301"
            assert started.env["ALIYUN_COM_GPU_MEM_CONTAINER"] == "4"
            assert started.env["ALIYUN_COM_GPU_MEM_DEV"] == "15"
        assert world.read_metric("vrampack_agent_starts_total", result="ok") == 2
