"""The agent as a process: its credentials, its signals, and its end."""

from __future__ import annotations

import asyncio
import logging
import signal

from vrampack.agent.app import Agent
from vrampack.agent.components import AgentOptions
from vrampack.agent.metrics import AgentMetrics
from vrampack.agent.nvml.driver import GpuDriver
from vrampack.kube.credentials import load_credentials
from vrampack.kube.node_api import NodeApi, ReadIdentity

log = logging.getLogger(__name__)


async def run_agent(options: AgentOptions, driver: GpuDriver) -> None:
    """Run the agent until SIGTERM or SIGINT.

    Raises `CredentialsError` or `OSError` (a port in use) at the start.
    """
    metrics = AgentMetrics(options.version, node=options.node)
    credentials = await load_credentials(
        options.kubeconfig, options.context, on_failure=metrics.credential_failures.inc
    )
    reads = ReadIdentity(options.node, options.settings.read_as, on_change=metrics.set_read_identity)
    api = NodeApi(credentials, reads, observe=metrics.observe_call, user_agent=f"vrampack-agent/{options.version}")
    try:
        agent = Agent(options, api, metrics, driver)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, agent.stop)
        log.info("agent started version=%s node=%s", options.version, options.node)
        await agent.run()
    finally:
        await api.close()
