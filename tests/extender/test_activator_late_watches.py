"""The whole service on the embedded cluster, its watches late: room that the scheduler saw first is used all the same.

The embedded scheduler tries a refused pod again on events that it hears itself, and on a change of the pod: when it
was refused once more, nothing but a kick brings it back within five minutes. (Other events of this busy little
cluster may do it first, so at most one kick is asserted; without any, the test fails by its time limit.)
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest_asyncio

from extender.app import Extender, ExtenderOptions
from extender.metrics import ExtenderMetrics
from extender.settings import DeadlineSettings, ExtenderConfiguration
from tests.fakes.proxy import FaultProxy
from tests.support.manifest_builders import RESOURCE, cards_annotation, pod_manifest, published_card
from vrampack.http.listener import open_listener
from vrampack.kube.aio_client import Configuration
from vrampack.kube.client import Api
from vrampack.kube.credentials import Credentials
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.embedded_cluster import run_embedded_cluster
from vrampack.simulator.scheduler import SchedulerSettings

KICK = r"/pods/[^/]+/status$"
FILTER = r"/filter$"
SETTINGS = ExtenderConfiguration(
    apiVersion="vrampack.dev/v1", kind="ExtenderConfiguration", deadlines=DeadlineSettings(ready_after_seconds=0)
)


class LateWatchHarness:
    """A cluster of one node of one card of 15 units; `api` stands before its API server, `front` before its extender."""

    def __init__(self, server: ApiServer, api: FaultProxy, front: FaultProxy) -> None:
        self.server = server
        self.api = api
        self.front = front
        self._changed = asyncio.Event()
        server.store.subscribe(self._changed.set)
        published = {"vrampack.dev/cards": cards_annotation(published_card(0), injection="cdi")}
        status = {"allocatable": {RESOURCE: "15", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}
        server.create({"kind": "Node", "metadata": {"name": "n", "annotations": published}, "status": status})

    def create(self, name: str) -> None:
        self.server.create(pod_manifest(name, 15, scheduler="default-scheduler") | {"kind": "Pod"})

    def publish(self, card: dict[str, object]) -> None:
        annotations = {"vrampack.dev/cards": cards_annotation(card, injection="cdi")}
        self.server.patch("nodes", "n", {"metadata": {"annotations": annotations}})

    async def bound(self, name: str) -> None:
        await self._until(lambda: "nodeName" in self.server.get("pods", name)["spec"])

    async def refused(self, name: str) -> None:
        await self._until(lambda: bool(self.server.get("pods", name)["status"].get("conditions")))

    async def refused_again(self, change: Callable[[], object]) -> None:
        """The change reaches the scheduler, which asks; the extender does not know of it yet."""
        before = self.front.count("POST", FILTER)
        change()
        await self.front.finished("POST", FILTER, before + 1)

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


@pytest_asyncio.fixture
async def town() -> AsyncIterator[LateWatchHarness]:
    sockets = {"verbs": open_listener("127.0.0.1", 0)}
    async with FaultProxy(sockets["verbs"].getsockname()[1]) as front:
        url = f"{front.url}{SETTINGS.listen.url_prefix}"
        async with (
            run_embedded_cluster(SchedulerSettings(url, ignored_resources=frozenset({RESOURCE}))) as server,
            FaultProxy(int(server.url.rpartition(":")[2])) as api,
        ):
            made = LateWatchHarness(server, api, front)
            async with running(api, sockets):
                yield made


@asynccontextmanager
async def running(api: FaultProxy, sockets: dict[str, socket.socket]) -> AsyncIterator[None]:
    metrics = ExtenderMetrics("test")
    client = Api(Credentials(Configuration(host=api.url)), observe=metrics.observe_call)
    extender = Extender(ExtenderOptions(SETTINGS, "test"), client, metrics)
    task = asyncio.create_task(extender.run(sockets))
    await api.seen("GET", "watch=true", 2)
    yield
    api.thaw_watches()
    extender.stop()
    await task
    await client.close()


async def test_room_that_the_scheduler_saw_first_is_used(town: LateWatchHarness) -> None:
    town.create("a")
    await town.bound("a")
    town.create("b")
    await town.refused("b")
    town.api.freeze_watches()
    await town.refused_again(lambda: town.server.delete("pods", "a", grace_seconds=0))
    assert town.api.count("PATCH", KICK) == 0
    town.api.thaw_watches()
    await town.bound("b")
    assert town.api.count("PATCH", KICK) <= 1


async def test_a_card_that_healed_before_we_knew_is_used(town: LateWatchHarness) -> None:
    town.publish(published_card(0, healthy=False))
    town.create("a")
    await town.refused("a")
    town.api.freeze_watches()
    await town.refused_again(lambda: town.publish(published_card(0)))
    town.api.thaw_watches()
    await town.bound("a")
    assert town.api.count("PATCH", KICK) <= 1
