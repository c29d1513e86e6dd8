"""The embedded scheduler does what the real one was recorded doing, scenario by scenario.

`tests/e2e/test_scheduler_recordings.py` plays the same scenarios on the real scheduler, and records it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.fakes.scripted_extender import ScriptedExtender
from tests.simulator.scheduler_clock import HandClock
from tests.support.scheduler_recordings.player import ScenarioPlayer
from tests.support.scheduler_recordings.recordings import read_recording_of, recorded_names, without_ports
from tests.support.scheduler_recordings.scenarios import CONFIGURATION, SCENARIOS
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.scheduler import Scheduler, SchedulerSettings

TICK_SECONDS, PAUSE_SECONDS = 0.1, 0.005
"""The scheduler's clock advances by a tick after each pause: its back-off of 1 s takes 50 ms.

A tick is a turn of the event loop, however long that took: a machine that stalls for a second loses no time.
"""


class EmbeddedWorld:
    """The embedded cluster, with the interface that the player needs."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def create(self, kind: str, name: str, body: dict[str, Any]) -> None:
        self._api.create({**body, "kind": kind, "metadata": {**body.get("metadata", {}), "name": name}})

    def patch(self, plural: str, name: str, patch: dict[str, Any], *, is_status: bool = False) -> None:
        self._api.patch(plural, name, patch, is_status=is_status)

    def delete(self, pod: str) -> None:
        self._api.delete("pods", pod, grace_seconds=0)

    def pods(self) -> list[dict[str, Any]]:
        return self._api.list_pods()

    def events(self) -> list[dict[str, Any]]:
        return self._api.list_events()


@asynccontextmanager
async def embedded() -> AsyncIterator[ScenarioPlayer]:
    async with ApiServer() as api, ScriptedExtender(api.url) as extender:
        settings = SchedulerSettings.from_yaml(CONFIGURATION.format(url=extender.url))
        clock = HandClock()
        scheduler = Scheduler(api.store, settings, now=clock.now, sleep=clock.sleep)
        tasks = [asyncio.create_task(each) for each in (scheduler.run(), _turn(clock))]
        yield ScenarioPlayer(EmbeddedWorld(api), extender)
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _turn(clock: HandClock) -> None:
    while True:
        await asyncio.sleep(PAUSE_SECONDS)
        clock.advance(TICK_SECONDS)


@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_embedded_scheduler_acts_as_recorded(name: str) -> None:
    async with embedded() as player:
        player.prepare(SCENARIOS[name])
        seen = await player.play(SCENARIOS[name])
    assert without_ports(seen) == read_recording_of(name)


def test_every_recording_belongs_to_a_scenario() -> None:
    assert recorded_names() == set(SCENARIOS)
