"""An hour in which nothing is wrong: pods come, run and go, and no alert is raised."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

from tests.agent.pod_lifecycle import remove_pod, run_pod
from tests.alerts.monitoring_stack import SPEED, MonitoringStack
from tests.alerts.scene import T4, Programs, run_scene
from tests.alerts.watched_agent import run_watched_agent
from tests.fakes.kubelet.scripted_plugin import MEMORY
from vrampack.cli.demo.objects import build_pod_object

HOUR_SECONDS = 3600 / SPEED
UNITS = (4, 8, 3, 11, 6)
"""Four of these are there at a time, at most 28 of 45 units; wherever they are, the next has a card."""


async def test_pods_that_are_scheduled_and_deleted_raise_no_alert(tmp_path: Path, programs: Programs) -> None:
    async with run_scene(tmp_path, programs, {"gpu-0": (T4, T4), "gpu-1": (T4,)}) as scene:
        ends_at = asyncio.get_running_loop().time() + HOUR_SECONDS
        for number in count():
            scene.api.create(build_pod_object(f"p{number}", units=UNITS[number % len(UNITS)]))
            await scene.wait_until_bound(f"p{number}")
            if number >= 3:
                scene.api.delete("pods", f"p{number - 3}")
            await scene.monitoring.wait_until_sampled(f'vrampack_bind_total{{result="ok"}} > {number}')
            if asyncio.get_running_loop().time() > ends_at:
                break
        assert number > 10
        await assert_nothing_fires(scene.monitoring)


async def test_pods_that_start_and_end_raise_no_alert(tmp_path: Path, programs: Programs) -> None:
    async with run_watched_agent(tmp_path, programs, enforcement="watch") as (world, monitoring):
        # kubelet reports it after 10 s; a node that never has it makes the agent register again, with pods in between
        world.patch_node_status({MEMORY: str(world.kubelet.allocatable(MEMORY))})
        ends_at = asyncio.get_running_loop().time() + HOUR_SECONDS
        for number in count():
            pod = world.add_bound_pod(f"p{number}", units=4)
            await run_pod(world, pod)
            await monitoring.wait_until_sampled(f'vrampack_agent_starts_total{{result="ok"}} > {number}')
            remove_pod(world, pod)
            if asyncio.get_running_loop().time() > ends_at:
                break
        assert number > 10
        await assert_nothing_fires(monitoring)


async def assert_nothing_fires(monitoring: MonitoringStack) -> None:
    """Neither now nor earlier."""
    assert monitoring.receiver.alerts == []
    assert [alert for alert in await monitoring.list_alerts() if alert["state"] == "firing"] == []
