"""Alerts about nodes: the real agent, on a kubelet and a driver of the tests."""

from __future__ import annotations

from pathlib import Path

from tests.agent.agent_harness import NODE
from tests.agent.pod_lifecycle import put_bound_pod, run_pod, start_refused
from tests.alerts.monitoring_stack import MonitoringStack
from tests.alerts.scene import Programs
from tests.alerts.watched_agent import PID, run_watched_agent, use_memory
from vrampack.agent.limits.cgroups import CgroupOwner
from vrampack.agent.nvml.errors import DriverError

REFUSED_STARTS = 6
"""More than four: what a pod that stays refused comes to within half an hour."""


async def test_an_unhealthy_card_raises_an_alert(tmp_path: Path, programs: Programs) -> None:
    async with run_watched_agent(tmp_path, programs, enforcement="watch") as (world, monitoring):
        world.driver.failing["GPU-0"] = DriverError("GPU is lost")
        alert = await monitoring.wait_until_notified("VrampackCardUnhealthy", "firing")
        assert (alert["labels"]["node"], alert["labels"]["UUID"]) == (NODE, "GPU-0")
        world.driver.failing.clear()
        await monitoring.wait_until_notified("VrampackCardUnhealthy", "resolved")
        assert_notified_of(monitoring, "VrampackCardUnhealthy")


async def test_a_container_over_its_limit_raises_an_alert(tmp_path: Path, programs: Programs) -> None:
    """It was given 4 of 15 units, so 4301 MiB, and uses 6 GiB where no back end holds limits."""
    async with run_watched_agent(tmp_path, programs, enforcement="watch") as (world, monitoring):
        pod = world.add_bound_pod("app-6g-v1", units=4)
        await run_pod(world, pod)
        world.owners[PID] = CgroupOwner(pod.uid, pod.states["main"].container_id.rpartition("/")[2])
        await use_memory(world, 6144)
        alert = await monitoring.wait_until_notified("VrampackContainerOverLimit", "firing")
        # 6144 - 4301 MiB, and the tenant's own names, not the agent's
        assert alert["annotations"]["summary"] == "default/app-6g-v1 uses 1.8GiB more of a card than its limit."
        await use_memory(world, 3200)
        await monitoring.wait_until_notified("VrampackContainerOverLimit", "resolved")
        assert_notified_of(monitoring, "VrampackContainerOverLimit")


async def test_limits_that_no_back_end_enforces_raise_an_alert(tmp_path: Path, programs: Programs) -> None:
    """Nothing that holds limits works on this node, until the library is there and the agent restarts."""
    async with run_watched_agent(tmp_path, programs, starts=False) as (world, monitoring):
        world.driver.version = "580.95.05"
        await world.start_agent()
        await monitoring.wait_until_notified("VrampackLimitsUnheld", "firing")
        await world.stop_agent()
        world.add_library()
        await world.start_agent()
        await monitoring.wait_until_notified("VrampackLimitsUnheld", "resolved")
        assert_notified_of(monitoring, "VrampackLimitsUnheld")


async def test_refused_starts_raise_an_alert(tmp_path: Path, programs: Programs) -> None:
    """A pod that was bound without a record asks again and again, until it is deleted."""
    async with run_watched_agent(tmp_path, programs, enforcement="watch") as (world, monitoring):
        await monitoring.wait_until_sampled('vrampack_agent_starts_total{result="no_record"}')
        pod = put_bound_pod(world, "smuggled", is_recorded=False)
        for _ in range(REFUSED_STARTS):
            assert "has no record of its cards" in await start_refused(world, pod)
        alert = await monitoring.wait_until_notified("VrampackStartsRefused", "firing")
        assert (alert["labels"]["node"], alert["labels"]["result"]) == (NODE, "no_record")
        await monitoring.wait_until_notified("VrampackStartsRefused", "resolved")
        assert_notified_of(monitoring, "VrampackStartsRefused")


async def test_an_absent_agent_raises_an_alert(tmp_path: Path, programs: Programs) -> None:
    """The extender knows the cards of its node from the Node object, whether the agent is there or not."""
    async with run_watched_agent(tmp_path, programs, enforcement="watch") as (world, monitoring):
        await monitoring.wait_until_sampled("vrampack:node_memory_capacity:bytes")
        await world.stop_agent()
        alert = await monitoring.wait_until_notified("VrampackAgentAway", "firing")
        assert alert["labels"]["node"] == NODE
        await world.start_agent()
        await monitoring.wait_until_notified("VrampackAgentAway", "resolved")
        assert monitoring.receiver.names == {"VrampackAgentAway"}


def assert_notified_of(monitoring: MonitoringStack, name: str) -> None:
    """And of nothing else.

    Beside an agent that is away: it is part of the test's process, and one that a busy machine stops for five seconds
    has been away for ten minutes of this clock.
    """
    assert monitoring.receiver.names - {"VrampackAgentAway"} == {name}
