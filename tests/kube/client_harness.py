"""A client of an API server, with a proxy in between for faults."""

from __future__ import annotations

from collections.abc import Callable

from tests.fakes.proxy import FaultProxy
from tests.support.recorded_api_calls import RecordedApiCalls
from vrampack.kube.client import Api
from vrampack.simulator.apiserver import ApiServer

SOON = 5.0
"""A deadline that no call should reach."""
ANNOTATIONS = {"vrampack.dev/allocation": "{}", "limit-mib.vrampack.dev/main": "4301"}


class ClientHarness:
    """A client behind a proxy in front of an API server with one pod."""

    def __init__(self, server: ApiServer, proxy: FaultProxy, api: Api, calls: RecordedApiCalls) -> None:
        self.server, self.proxy, self.api, self.calls = server, proxy, api, calls
        self.pod = server.create({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}})

    async def bind(self, *, uid: str = "", name: str = "p", node: str = "n", timeout_seconds: float = SOON) -> None:
        uid = uid or self.pod["metadata"]["uid"]
        await self.api.bind("default", name, uid, node, ANNOTATIONS, timeout_seconds=timeout_seconds)

    async def watch_to_its_end(self, *, silence_seconds: float = SOON, on_line: Callable[[], object] = int) -> None:
        async with self.api.watch("pods", "1", server_seconds=60, silence_seconds=silence_seconds) as lines:
            while await lines.readany():
                on_line()

    def bound_to(self) -> str | None:
        node: str | None = self.server.get("pods", "p")["spec"].get("nodeName")
        return node
