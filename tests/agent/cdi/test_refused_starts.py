"""Starts that are refused after the fence has admitted them: what is taken back, who is told, and until when."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from typing import Any

from tests.agent.agent_harness import AgentHarness, agent_harness
from tests.agent.cdi.injected_edits import list_specs
from tests.agent.pod_lifecycle import (
    count_refusals,
    fence_of,
    put_bound_pod,
    run_pod,
    start_container,
    start_refused,
)
from vrampack.cards import well_known
from vrampack.cards.refused_pods import read_refused

SOON: Mapping[str, Any] = {"refused": {"after_seconds": 0.05}}


def list_refused(world: AgentHarness) -> dict[str, str]:
    """What the Node says to the extender."""
    text = world.read_annotation(well_known.NODE_REFUSED)
    return {} if text is None else read_refused(text)[0]


def list_told(world: AgentHarness) -> dict[str, str]:
    """The text of the last event about a refused start, by pod."""
    events = (event for event in world.api.list_events() if event["reason"] == "GPUMemoryStartRefused")
    return {event["involvedObject"]["name"]: event["message"] for event in events}


async def test_a_start_that_kubelet_stops_waiting_for_leaves_nothing_and_is_reported() -> None:
    """The runtime stalls. kubelet's call ends at its deadline, and the agent's answer would reach nobody."""
    async with agent_harness(starts=False, **SOON) as world:
        runtime = await world.add_runtime()
        await world.start_agent()
        pod = put_bound_pod(world, "p", has_references=False)
        assert await world.kubelet.admit(pod)
        os.kill(runtime.pid, signal.SIGSTOP)
        starting = asyncio.create_task(world.kubelet.try_start(pod, "main"))
        await world.wait_until(lambda: bool(list_specs(world)))
        assert fence_of(world).count_held_units() == {"GPU-0": 4}
        starting.cancel()
        await world.wait_until(lambda: list_refused(world) == {pod.uid: "deadline"})
        assert "container main: kubelet stopped waiting" in list_told(world)["p"]
        assert count_refusals(world, "deadline") == 1
        assert not fence_of(world).count_held_units()
        assert list(world.agent.components.workload.list_desired()) == []
        assert list_specs(world) == []

        os.kill(runtime.pid, signal.SIGCONT)
        await start_container(world, pod)
        await world.wait_until(lambda: list_refused(world) == {})


async def test_a_restart_that_is_refused_is_told_and_named_like_a_first_start() -> None:
    """NVIDIA's spec is gone, as while its toolkit is upgraded. The pod has run, so it keeps its units."""
    async with agent_harness(starts=False, **SOON) as world:
        await world.add_runtime()
        await world.start_agent()
        pod = put_bound_pod(world, "p", has_references=False)
        await run_pod(world, pod)
        spec = world.cdi_folder / "management.nvidia.com-gpu.json"
        kept = spec.rename(world.folder / "kept")
        world.kubelet.exit(pod, "main")
        assert "no CDI spec of NVIDIA's" in await start_refused(world, pod)
        await world.wait_until(lambda: list_refused(world) == {pod.uid: "cdi"})
        assert "container main: no CDI spec of NVIDIA's" in list_told(world)["p"]
        assert fence_of(world).count_held_units() == {"GPU-0": 4}

        kept.rename(spec)
        await start_container(world, pod)
        assert world.agent.components.own_node._desired["annotations", well_known.NODE_REFUSED] is None
        await world.wait_until(lambda: list_refused(world) == {})
