"""A small cluster with the embedded scheduler, the scripted extender, and a clock that is turned by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from tests.fakes.scripted_extender import ScriptedExtender
from tests.simulator.scheduler_clock import HandClock
from tests.support.scheduler_recordings.player import wait_until_async
from tests.support.scheduler_recordings.scenarios import CONFIGURATION, asks, gpus
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.scheduler import Scheduler, SchedulerSettings


@dataclass
class SimulatedSchedulerHarness:
    """A cluster, and what is needed to schedule in it."""

    api: ApiServer
    extender: ScriptedExtender
    clock: HandClock
    settings: SchedulerSettings

    def node(self, name: str, units: int = 16) -> None:
        self.api.create({"kind": "Node", **gpus(units), "metadata": {"name": name}})

    def pod(self, name: str, units: int | None = 4, **spec: Any) -> None:  # noqa: ANN401 - fields of a pod
        self.api.create({"kind": "Pod", "metadata": {"name": name}, "spec": asks(units, **spec)})

    async def wait_until_bound(self, *names: str) -> None:
        await wait_until_async(lambda: all(self.node_of(name) for name in names), f"{names} bound")

    async def wait_for_event(self, count: int) -> None:
        """Wait until `count` events are written: a bind is over when its event is, not when the pod is bound."""
        await wait_until_async(lambda: len(self.api.list_events()) == count, f"{count} events")

    async def wait_for_call(self, name: str, count: int) -> None:
        """Wait until filter was called `count` times about the pod, and no call is in flight."""
        await wait_until_async(
            lambda: self.filters(name) == count and not self.extender.open_calls, f"{name} asked {count} times"
        )

    async def wait_until_idle(self, *, for_seconds: float | None) -> None:
        """Wait until the scheduler is idle for `for_seconds` unless something changes; None: for ever."""
        await wait_until_async(lambda: self.clock.asleep_for == for_seconds, f"idle for {for_seconds}")

    def node_of(self, name: str) -> str:
        return str(self.api.get("pods", name)["spec"].get("nodeName", ""))

    def filters(self, name: str) -> int:
        return sum(call.verb == "filter" for call in self.extender.calls_of(name))

    def message(self, name: str) -> str:
        (condition,) = self.api.get("pods", name)["status"]["conditions"]
        return str(condition["message"])

    @asynccontextmanager
    async def scheduling(self, **settings: Any) -> AsyncIterator[None]:  # noqa: ANN401 - of SchedulerSettings
        told = replace(self.settings, **settings)
        scheduler = Scheduler(self.api.store, told, now=self.clock.now, sleep=self.clock.sleep)
        task = asyncio.create_task(scheduler.run())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def refused(self, name: str, reason: str) -> None:
        """Wait until the pod's condition has that reason."""
        await wait_until_async(lambda: reason in str(self.api.get("pods", name)["status"]), f"{name} refused: {reason}")


@asynccontextmanager
async def simulated_scheduler_harness() -> AsyncIterator[SimulatedSchedulerHarness]:
    """No scheduler runs yet."""
    async with ApiServer() as api, ScriptedExtender(api.url) as extender:
        settings = SchedulerSettings.from_yaml(CONFIGURATION.format(url=extender.url))
        yield SimulatedSchedulerHarness(api, extender, HandClock(), settings)
