"""When an API server ends the watches of all agents at once, they neither list their pods nor come back at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec

from tests.simulation.loop import SimulatedLoop
from vrampack.agent.cluster.pod_cache import RELIST_SPREAD_SECONDS, PodCache
from vrampack.cards import well_known
from vrampack.kube.api_caller import Resource
from vrampack.kube.client import Api
from vrampack.kube.errors import ResourceExpiredError, UnreachableError
from vrampack.kube.reflector import RECONNECT_SECONDS
from vrampack.kube.watch_reader import ByteStream

AGENTS = 300
STEP_SECONDS = 0.1
OUTAGE_SECONDS = 60
EMPTY = msgspec.json.encode({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": []})

T = TypeVar("T", bound="ExpiringApi")


class SilentStream:
    """The body of a watch that is never opened."""

    def read_nowait(self, n: int = -1) -> bytes:  # noqa: ARG002 - the shape of `ByteStream`
        return b""

    async def readany(self) -> bytes:
        return b""


class ExpiringApi(Api):
    """One agent's. Lists no pods; the first watch is told that its version has expired, the next one stays silent."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.listed_at: list[float] = []
        self._clock = clock

    async def list_page(self, _resource: Resource, **_: object) -> bytes:  # type: ignore[override]
        self.listed_at.append(self._clock())
        return EMPTY

    @asynccontextmanager
    async def watch(self, *_: object, **__: object) -> AsyncIterator[ByteStream]:
        if len(self.listed_at) == 1:
            raise ResourceExpiredError(410, "Expired", "too old resource version")
        await asyncio.Event().wait()
        yield SilentStream()


class StoppedApi(ExpiringApi):
    """Its API server refuses connections for `OUTAGE_SECONDS`; it can continue the watches afterwards."""

    returned_at = 0.0

    @asynccontextmanager
    async def watch(self, *_: object, **__: object) -> AsyncIterator[ByteStream]:
        if self._clock() < OUTAGE_SECONDS:
            raise UnreachableError("connection refused")
        self.returned_at = self._clock()
        await asyncio.Event().wait()
        yield SilentStream()


class Clock:
    """Time, which passes when the test says so."""

    seconds = 0.0


def test_300_agents_that_list_again_are_spread_over_half_a_minute() -> None:
    apis = run_agents(ExpiringApi, RELIST_SPREAD_SECONDS + 1)
    # No agent waits before its first list: until it has one, no pod with a GPU starts.
    assert {api.listed_at[0] for api in apis} == {0.0}
    relists = Counter(int(at) for api in apis for at in api.listed_at[1:])
    assert relists.total() == AGENTS
    assert max(relists.values()) < 30  # ten on average, with a standard deviation of three


def test_300_agents_come_back_spread_after_an_outage() -> None:
    """They all lost it at the same moment and wait the longest pause by then, of which a half is random."""
    apis = run_agents(StoppedApi, OUTAGE_SECONDS + RECONNECT_SECONDS + 1)
    returns = Counter(int(api.returned_at / STEP_SECONDS) for api in apis)
    assert min(returns) >= OUTAGE_SECONDS / STEP_SECONDS
    assert max(returns.values()) < 25  # eight on average


def run_agents(kind: Callable[[Callable[[], float]], T], seconds: float) -> list[T]:
    """The APIs of `AGENTS` agents that ran for so long."""
    clock = Clock()
    loop = SimulatedLoop(lambda: clock.seconds)
    apis = [kind(loop.time) for _ in range(AGENTS)]
    for api in apis:
        cache = PodCache(api, resource=well_known.MEMORY_RESOURCE, on_pod_ended=lambda _: None)
        loop.create_task(cache.build_reflector("n").run())
    loop.run_ready()
    while clock.seconds < seconds:
        clock.seconds += STEP_SECONDS
        loop.run_ready()
    loop.kill()
    return apis
