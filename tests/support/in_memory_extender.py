"""The service without a network: a ledger fed with raw objects, and the application called as a scheduler calls it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
from fastapi import FastAPI
from starlette.types import ASGIApp

from extender.components import build_components
from extender.events import ExtenderEventRecorder
from extender.http.protocol import VerbProtocol, build_protocol
from extender.http.routes import RouteDependencies, build_verbs_app
from extender.metrics import ExtenderMetrics
from extender.policy_settings import PolicyTuning
from extender.settings import ExtenderConfiguration
from extender.state.collector import SnapshotTaker
from extender.state.ledger import Ledger
from extender.state.sync import DriftCheck, Freshness, NodeSink, PodSink, ProblemReporter
from extender.state.usage_leases import UsageLeases
from tests.fakes.api import FakeKubeApi, Object
from tests.support.ledger_recorder import LedgerRecorder
from tests.support.scripted_readiness import ScriptedReadiness
from vrampack.cards.node import Node
from vrampack.cards.payment import find_unpaid_use
from vrampack.kube.client import Api
from vrampack.kube.objects import NodeObject, PodObject, to_pod

PREFIX = "/gpushare-scheduler"
CONFIGURATION = ExtenderConfiguration(
    apiVersion="vrampack.dev/v1", kind="ExtenderConfiguration", policy=PolicyTuning(default="binpack")
)
"""With the policy whose order an oracle can compute without knowledge of earlier requests."""
GO_HEADERS = ((b"user-agent", b"Go-http-client/1.1"), (b"content-type", b"application/json"))

State = tuple[int, list[Node], list[tuple[str, str]], list[str]]


@dataclass(frozen=True, slots=True)
class AsgiReply:
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:  # noqa: ANN401 - any JSON value
        return json.loads(self.body)


class InMemoryExtender:
    """One extender over these nodes and pods, in step with them and ready."""

    def __init__(self, nodes: Iterable[Object] = (), pods: Iterable[Object] = (), api: Api | None = None) -> None:
        pods = list(pods)
        self.memory = FakeKubeApi(pods)
        """What is called where no other API server is given."""
        api = self.memory if api is None else api
        self.metrics = metrics = ExtenderMetrics("test")
        events = ExtenderEventRecorder(api, metrics, clock=time.monotonic, now=time.time)
        reporter = ProblemReporter(metrics, events)
        memory = CONFIGURATION.resources.memory
        read = [to_pod(msgspec.json.decode(json.dumps(pod), type=PodObject), resource=memory) for pod in pods]
        placement = CONFIGURATION.settle_whole_cards(find_unpaid_use(read)).build_placement()
        self.ledger = Ledger(unit_mib=CONFIGURATION.unit_mib, clock=time.monotonic, placement=placement)
        self.ledger_recorder = LedgerRecorder()
        self.ledger.add_listener(self.ledger_recorder)
        self.freshness = Freshness(clock=time.monotonic, now=time.time, stale_seconds=120)
        self._pods = PodSink(self.ledger, self.freshness, reporter, metrics, CONFIGURATION.resources.memory)
        self._nodes = NodeSink(self.ledger, self.freshness, reporter, metrics, CONFIGURATION)
        self.readiness = ScriptedReadiness()
        self._components = components = build_components(
            ledger=self.ledger,
            api=api,
            events=events,
            reporter=reporter,
            metrics=metrics,
            settings=CONFIGURATION,
            readiness=self.readiness,
            clock=time.monotonic,
            now_ns=time.time_ns,
        )
        self.engine, self.generations = components.engine, components.generations
        self.verbs, self.preemption = components.verbs, components.preemption
        self.timed_verbs, self.placements_view = components.timed_verbs, components.placements_view
        self.explain_view = components.explain_view
        self.feed_objects(nodes, pods)

    @cached_property
    def service(self) -> RouteDependencies:
        return RouteDependencies(
            self.timed_verbs,
            self.placements_view,
            self.explain_view,
            self.ledger,
            self.metrics,
            self.readiness,
            SnapshotTaker(
                self.ledger,
                self.engine,
                self.freshness,
                DriftCheck(self.ledger),
                clock=time.monotonic,
                measure_overdue_seconds=self._components.activator.measure_overdue_seconds,
            ),
            "test",
            self.generations,
            UsageLeases(self.metrics, clock=time.monotonic),
        )

    @cached_property
    def app(self) -> FastAPI:
        return build_verbs_app(self.service, PREFIX)

    @cached_property
    def protocol(self) -> type[VerbProtocol]:
        return build_protocol(self.timed_verbs.map_paths(PREFIX))

    def feed_objects(self, nodes: Iterable[Object], pods: Iterable[Object]) -> None:
        """List everything again, as the reflectors do: decoded object by object, nodes and pods."""
        for sink in (self._nodes, self._pods):
            sink.on_list_started("start")
            sink.on_contact()
        self._nodes.on_page([msgspec.json.decode(json.dumps(node), type=NodeObject) for node in nodes])
        self._pods.on_page([msgspec.json.decode(json.dumps(pod), type=PodObject) for pod in pods])
        self._nodes.on_list_finished()
        self._pods.on_list_finished()

    async def post_verb(self, verb: str, body: bytes, headers: Sequence[tuple[bytes, bytes]] = GO_HEADERS) -> AsgiReply:
        return await call_asgi(self.app, "POST", f"{PREFIX}/{verb}", body, headers)

    async def get_path(self, path: str) -> AsgiReply:
        return await call_asgi(self.app, "GET", path)

    def state(self) -> State:
        """Everything in the ledger that a request could have changed."""
        ledger = self.ledger
        held = sorted((each.pod.uid, each.node_name) for each in ledger.places.list_reservations())
        return ledger.generation, ledger.list_nodes(), held, sorted(pod.uid for pod in ledger.list_pods())


async def call_asgi(
    app: ASGIApp,
    method: str,
    path: str,
    body: bytes = b"",
    headers: Sequence[tuple[bytes, bytes]] = (),
    *,
    query: bytes = b"",
) -> AsgiReply:
    """One request through the application's ASGI interface, as a server hands it over."""
    sent: list[dict[str, Any]] = []  # Any: ASGI messages

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:  # noqa: ANN401 - an ASGI message
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query,
        "headers": [*headers, (b"content-length", str(len(body)).encode())],
        "client": ("127.0.0.1", 40000),
        "server": ("127.0.0.1", 12345),
    }
    await app(scope, receive, send)
    received = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return AsgiReply(sent[0]["status"], received, b"".join(message.get("body", b"") for message in sent[1:]))
