"""The embedded cluster: API server, workload controllers, simulated kubelet and scheduler, in one event loop.

    async with embedded_cluster(settings) as api:
        api.create({"kind": "StatefulSet", ...})  # becomes pods, which the scheduler places through the extender

The extender is not part of it: it is the real program, called over HTTP at the address in `settings`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.kubelet import SimulatedKubelet
from vrampack.simulator.scheduler import Scheduler, SchedulerSettings
from vrampack.simulator.workload_controller import WorkloadController


@asynccontextmanager
async def run_embedded_cluster(settings: SchedulerSettings, *, port: int = 0) -> AsyncIterator[ApiServer]:
    """Run a cluster without nodes inside the block. If a part of it fails, the block ends with that error."""
    async with ApiServer(port=port) as api, asyncio.TaskGroup() as group:
        parts = (WorkloadController(api.store), SimulatedKubelet(api.store), Scheduler(api.store, settings))
        tasks = [group.create_task(part.run()) for part in parts]
        try:
            yield api
        finally:
            for task in tasks:
                task.cancel()
