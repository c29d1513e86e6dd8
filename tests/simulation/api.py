"""`vrampack.kube.client.Api` of one simulated process, without sockets: every request waits in the network until a step answers it.

Requests and answers are bytes, so that the client's own reading of an answer is part of every run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import NetworkCall, SimulatedReply, SimulatedStream, WatchFeed, encode, encode_status
from vrampack.kube.api_request import ApiRequest
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError
from vrampack.simulator.errors import expired
from vrampack.simulator.object_store import ObjectStore
from vrampack.simulator.pagination import ContinueToken
from vrampack.simulator.patches import apply_merge_patch
from vrampack.simulator.resource_kinds import KINDS_BY_PLURAL, POD, Object

PAGE = 3
"""Objects per page: a list of ten pods is a list in four pages, with changes between them."""


class SimulatedApi(Api):
    """The client over the world's store."""

    def __init__(
        self, name: str, store: ObjectStore, loop: SimulatedLoop, network: Network, *, is_shuffled: bool
    ) -> None:
        self.name = name
        self._store = store
        self._loop = loop
        self._network = network
        self._observers = []
        self.feeds = {resource: WatchFeed(store, resource, is_shuffled=is_shuffled) for resource in ("pods", "nodes")}

    async def create_event(self, namespace: str, event: Mapping[str, object], *, timeout_seconds: float) -> None:
        """Events are no part of the simulation: they are always written, at once."""

    async def _send(self, request: ApiRequest) -> SimulatedReply:
        request.is_sent = True
        parts = [unquote(part) for part in request.path.split("/")[3:]]
        query, silence_seconds = request.query, request.silence_seconds
        if request.method == "GET" and len(parts) == 1:
            resource = parts[0]
            if silence_seconds is None:
                return await self._ask("list", resource, lambda: self._list(resource, query.get("continue", "")))
            return await self._ask("watch", resource, lambda: self._open_watch(resource, query, silence_seconds))
        _, namespace, _, name, *rest = parts
        if request.method == "GET":
            return await self._ask(
                "get", name, lambda: encode(POD.add_type_meta(self._store.get(POD, namespace, name)))
            )
        content: Object = dict(request.body or {})
        if rest == ["binding"]:
            node_name: str = content["target"]["name"]
            for observe in self._network.on_bind:
                observe(self.name, content["metadata"]["uid"], node_name, content["metadata"].get("annotations", {}))
            return await self._ask("bind", f"{name} to {node_name}", lambda: self._bind(namespace, name, content))
        return await self._ask("patch", name, lambda: self._patch_status(namespace, name, content))

    def _list(self, resource: str, token: str) -> bytes:
        page = self._store.read_page(
            KINDS_BY_PLURAL[resource], None, limit=PAGE, token=ContinueToken.parse_text(token) if token else None
        )
        if not token:
            self.feeds[resource].begin(page.version)
        metadata = {
            "resourceVersion": str(page.version),
            "continue": page.continue_token.encode_text() if page.continue_token else "",
        }
        return encode({"kind": f"{KINDS_BY_PLURAL[resource].name}List", "metadata": metadata, "items": page.items})

    def _open_watch(self, resource: str, query: Mapping[str, str], silence_seconds: float) -> SimulatedStream:
        version = int(query["resourceVersion"] or self._store.version)
        if version < self._store._compacted:
            raise expired(f"too old resource version: {version}")
        self.feeds[resource].resume(version)
        return SimulatedStream(self.name, resource, self._loop, self.feeds[resource], silence_seconds)

    def _bind(self, namespace: str, name: str, binding: Object) -> bytes:
        self._store.bind(namespace, name, binding)
        for observe in self._network.on_bound:
            observe(self.name, self._store.get(POD, namespace, name))
        return encode_status(201, "", "")

    def _patch_status(self, namespace: str, name: str, patch: Object) -> bytes:
        found = self._store.patch(POD, namespace, name, patch, apply_patch=apply_merge_patch, is_status=True)
        return encode(POD.add_type_meta(found))

    async def _ask(self, verb: str, text: str, run: Callable[[], Any]) -> SimulatedReply:
        """`run` is what the API server does; it returns a body, or the stream of a watch."""
        call = NetworkCall(self.name, verb, text, run, self._loop.create_future(), self._network.streams)
        self._network.calls.append(call)
        try:
            return await call.future
        finally:
            self._network.forget(call)


class Network:
    """All calls and watches of all processes."""

    def __init__(self) -> None:
        self.calls: list[NetworkCall] = []
        self.late: list[NetworkCall] = []
        """Given up by their callers and not executed: they still may be."""
        self.streams: list[SimulatedStream] = []
        self.on_bind: list[Callable[[str, str, str, Mapping[str, str]], None]] = []
        """Told of every Binding before it is sent: process, uid, node, annotations."""
        self.on_bound: list[Callable[[str, Object], None]] = []
        """Told of every Binding that was written: whose it is, and the pod."""

    def forget(self, call: NetworkCall) -> None:
        """The caller waits no longer. A Binding that got no answer may still be done."""
        if call in self.calls:
            self.calls.remove(call)
            if not call.is_executed and call.verb == "bind":
                self.late.append(call)

    def give_up(self, call: NetworkCall, text: str) -> None:
        """The caller gets no answer; what it asked for may still be done."""
        self.forget(call)
        call.fail(NoAnswerError(text))
