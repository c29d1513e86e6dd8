"""The surroundings of a reflector under test: an API server behind a fault proxy, a client and a sink."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.fakes.proxy import FaultProxy
from tests.kube.sinks import RecordingSink
from tests.support.recorded_api_calls import open_api
from vrampack.kube.client import Api
from vrampack.kube.objects import PodObject
from vrampack.simulator.apiserver import ApiServer

WATCH = r"/pods\?watch=true"
LIST = r"/pods\?limit="
NEXT_PAGE = r"/pods\?limit=\d+&continue="


class ReflectorHarness:
    """An API server, a proxy in front of it, a client and a sink."""

    def __init__(self, server: ApiServer, proxy: FaultProxy, api: Api) -> None:
        self.server, self.proxy, self.api = server, proxy, api
        self.sink: RecordingSink[PodObject] = RecordingSink()

    def create(self, *names: str) -> None:
        for name in names:
            self.server.create({"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "main"}]}})

    def label(self, name: str) -> None:
        self.server.patch("pods", name, {"metadata": {"labels": {"at": str(self.server.resource_version)}}})

    async def watching(self, *names: str) -> None:
        """Wait until these are listed, and a pod created afterwards (`open`) has come through the watch."""
        await self.sink.until(lambda: "list ends" in self.sink.told)
        await self.sink.told_of(*names)
        self.create("open")
        await self.sink.until(lambda: "changed open" in self.sink.told)

    def since(self) -> list[int]:
        """The versions from which watches were requested."""
        targets = [watch.target for watch in self.proxy.matching("GET", WATCH)]
        return [int(re.findall(r"resourceVersion=(\d+)", target)[0]) for target in targets]


def port_of(server: ApiServer) -> int:
    return int(server.url.rpartition(":")[2])


@asynccontextmanager
async def open_harness() -> AsyncIterator[ReflectorHarness]:
    async with ApiServer() as server, FaultProxy(port_of(server)) as proxy, open_api(proxy.url) as api:
        yield ReflectorHarness(server, proxy, api)
