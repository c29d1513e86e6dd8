"""`vrampack.kube.client.Api` of one simulated process: every call waits in the network until a step lets it go on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import NetworkCall, SimulatedStream, WatchFeed, encode
from vrampack.kube.client import Api, Resource
from vrampack.kube.errors import NoAnswerError
from vrampack.kube.objects import PodObject
from vrampack.simulator.errors import StatusError, expired
from vrampack.simulator.object_store import ObjectStore
from vrampack.simulator.pagination import ContinueToken
from vrampack.simulator.patches import apply_merge_patch
from vrampack.simulator.resource_kinds import KINDS_BY_PLURAL, POD

PAGE = 3
"""Objects per page: a list of ten pods is a list in four pages, with changes between them."""
LIST_SECONDS = 30.0


class SimulatedApi(Api):
    """The methods that the extender calls, over the world's store."""

    def __init__(
        self, name: str, store: ObjectStore, loop: SimulatedLoop, network: Network, *, is_shuffled: bool
    ) -> None:
        self.name = name
        self._store = store
        self._loop = loop
        self._network = network
        self.feeds: dict[Resource, WatchFeed] = {
            "pods": WatchFeed(store, "pods", is_shuffled=is_shuffled),
            "nodes": WatchFeed(store, "nodes", is_shuffled=is_shuffled),
        }

    async def list_page(self, resource: Resource, *, limit: int, token: str = "", **_: object) -> bytes:  # noqa: ARG002 - the real one's shape
        def run() -> bytes:
            page = self._store.read_page(
                KINDS_BY_PLURAL[resource], None, limit=PAGE, token=ContinueToken.parse_text(token) if token else None
            )
            if not token:
                self.feeds[resource].begin(page.version)
            metadata = {
                "resourceVersion": str(page.version),
                "continue": page.continue_token.encode_text() if page.continue_token else "",
            }
            kind = f"{KINDS_BY_PLURAL[resource].name}List"
            return encode({"kind": kind, "metadata": metadata, "items": page.items})

        return bytes(await self._ask("list", resource, run, LIST_SECONDS))

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        resource_version: str,
        *,
        server_seconds: int,
        silence_seconds: float,
        **_: object,
    ) -> AsyncIterator[SimulatedStream]:
        def run() -> SimulatedStream:
            if int(resource_version) < self._store._compacted:
                raise expired(f"too old resource version: {resource_version}")
            self.feeds[resource].resume(int(resource_version))
            ends_at = self._loop.time() + server_seconds
            return SimulatedStream(self.name, resource, self._loop, self.feeds[resource], silence_seconds, ends_at)

        stream: SimulatedStream = await self._ask("watch", resource, run, silence_seconds)
        self._network.streams.append(stream)
        try:
            yield stream
        finally:
            self._network.streams.remove(stream)

    async def get_pod(self, namespace: str, name: str, *, timeout_seconds: float) -> PodObject | None:
        def run() -> PodObject | None:
            try:
                found = self._store.get(POD, namespace, name)
            except StatusError as refusal:
                if refusal.code == 404:
                    return None
                raise
            return msgspec.json.decode(encode(found), type=PodObject)

        found: PodObject | None = await self._ask("get", name, run, timeout_seconds)
        return found

    async def bind(
        self,
        namespace: str,
        name: str,
        uid: str,
        node_name: str,
        annotations: Mapping[str, str],
        *,
        version: str = "",
        timeout_seconds: float,
    ) -> None:
        metadata = {"name": name, "namespace": namespace, "uid": uid, "annotations": dict(annotations)}
        metadata |= {"resourceVersion": version} if version else {}
        binding = {"metadata": metadata, "target": {"kind": "Node", "name": node_name}}
        for observe in self._network.on_bind:
            observe(self.name, uid, node_name, annotations)

        def run() -> None:
            self._store.bind(namespace, name, binding)

        await self._ask("bind", f"{name} to {node_name}", run, timeout_seconds)

    async def patch_pod_status(
        self, namespace: str, name: str, uid: str, annotations: Mapping[str, str], *, timeout_seconds: float
    ) -> PodObject:
        patch = {"metadata": {"uid": uid, "annotations": dict(annotations)}}

        def run() -> PodObject:
            found = self._store.patch(POD, namespace, name, patch, apply_patch=apply_merge_patch, is_status=True)
            return msgspec.json.decode(encode(found), type=PodObject)

        patched: PodObject = await self._ask("patch", name, run, timeout_seconds)
        return patched

    async def create_event(self, namespace: str, event: Mapping[str, object], *, timeout_seconds: float) -> None:
        """Events are no part of the simulation: they are always written, at once."""

    async def _ask(self, verb: str, text: str, run: Callable[[], Any], seconds: float) -> Any:  # noqa: ANN401 - one answer per verb
        call = NetworkCall(self.name, verb, text, run, self._loop.create_future())
        self._network.calls.append(call)
        timer = self._loop.call_later(seconds, self._network.time_out, call)
        try:
            return await call.future
        finally:
            timer.cancel()
            if call in self._network.calls:
                self._network.calls.remove(call)


class Network:
    """All calls and watches of all processes."""

    def __init__(self) -> None:
        self.calls: list[NetworkCall] = []
        self.late: list[NetworkCall] = []
        """Given up by their callers and not executed: they still may be."""
        self.streams: list[SimulatedStream] = []
        self.on_bind: list[Callable[[str, str, str, Mapping[str, str]], None]] = []
        """Told of every Binding before it is sent: process, uid, node, annotations."""

    def time_out(self, call: NetworkCall) -> None:
        self.give_up(call, "timed out")

    def give_up(self, call: NetworkCall, text: str) -> None:
        """The caller gets no answer; what it asked for may still be done."""
        if not call.is_executed and call.verb == "bind":
            self.late.append(call)
        if call in self.calls:
            self.calls.remove(call)
        call.fail(NoAnswerError(text))
