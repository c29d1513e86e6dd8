"""A node of the tests with the real agent, and what scrapes it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.agent.agent_harness import NODE, AgentHarness, agent_harness
from tests.alerts.monitoring_stack import MonitoringStack, run_monitoring
from tests.alerts.scene import Programs, agent_target, run_extender
from tests.alerts.scrape_config import ScrapeTarget
from tests.support.processes import LOOPBACK, choose_free_ports
from vrampack.agent.nvml.driver import GpuProcess, GpuUsage

MIB = 1 << 20
CARD_MIB = 16130
PID = 77
"""The one process on a card."""


@asynccontextmanager
async def run_watched_agent(
    folder: Path,
    programs: Programs,
    *gpus: int,
    starts: bool = True,
    others: Sequence[ScrapeTarget] = (),
    **settings: Any,  # noqa: ANN401 - a document's values
) -> AsyncIterator[tuple[AgentHarness, MonitoringStack]]:
    """A node whose agent and extender are scraped once they are there; `gpus` are cards in MiB, without them one V100."""
    address = f"{LOOPBACK}:{choose_free_ports(1)[0]}"
    async with (
        agent_harness(*gpus, starts=starts, listen={"health": address}, **settings) as world,
        run_extender(folder, world.api.url) as extender,
        run_monitoring(folder, programs, [extender.target, agent_target(address, NODE), *others]) as monitoring,
    ):
        yield world, monitoring


async def use_memory(world: AgentHarness, mib: int) -> None:
    """The one process on the card uses so much, and the agent has looked: it does every 15 s."""
    world.driver.usage = (GpuUsage("GPU-0", mib * MIB, CARD_MIB * MIB, (GpuProcess(PID, mib * MIB),)),)
    await world.agent.components.usage_collector.refresh_usage()
