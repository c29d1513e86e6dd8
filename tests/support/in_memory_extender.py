"""The service without a network: a ledger fed with raw objects, and the application called as a scheduler calls it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
from starlette.types import ASGIApp

from extender.components import build_components
from extender.events import ExtenderEventRecorder
from extender.http.routes import RouteDependencies, build_verbs_app
from extender.http.timed_verbs import VerbMiddleware
from extender.metrics import ExtenderMetrics
from extender.settings import ExtenderConfiguration
from extender.state.collector import LedgerSnapshot
from extender.state.ledger import Ledger
from extender.state.ledger_problems import LedgerProblem
from extender.state.sync import Freshness, NodeSink, PodSink, ProblemReporter
from tests.fakes.api import FakeKubeApi, Object
from vrampack.cards.node import Node
from vrampack.kube.client import Api
from vrampack.kube.objects import NodeObject, PodObject

PREFIX = "/gpushare-scheduler"
CONFIGURATION = ExtenderConfiguration(apiVersion="vrampack.dev/v1", kind="ExtenderConfiguration")
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
        self.notices: list[LedgerProblem] = []
        events = ExtenderEventRecorder(api, metrics, clock=time.monotonic, now=time.time)
        watcher = ProblemReporter(metrics, events)
        self.ledger = Ledger(unit_mib=CONFIGURATION.unit_mib, clock=time.monotonic, report_problem=self.notices.append)
        self.freshness = Freshness(clock=time.monotonic, now=time.time, stale_seconds=120)
        self._pods = PodSink(self.ledger, self.freshness, watcher, metrics, CONFIGURATION.resources.memory)
        self._nodes = NodeSink(self.ledger, self.freshness, watcher, metrics, CONFIGURATION)
        self.problem = ""
        parts = build_components(
            ledger=self.ledger,
            api=api,
            events=events,
            metrics=metrics,
            settings=CONFIGURATION,
            find_unready_reason=self._problem,
            clock=time.monotonic,
            now_ns=time.time_ns,
        )
        self.verbs, self.preemption, self.places = parts.verbs, parts.preemption, parts.placements_view
        self.feed_objects(nodes, pods)

    @cached_property
    def service(self) -> RouteDependencies:
        return RouteDependencies(
            self.verbs, self.preemption, self.places, self.ledger, self.metrics, self._problem, self._view, "test"
        )

    @cached_property
    def app(self) -> VerbMiddleware:
        return build_verbs_app(self.service, PREFIX)

    def feed_objects(self, nodes: Iterable[Object], pods: Iterable[Object]) -> None:
        """List everything anew, as the reflectors do: decoded object by object, nodes and pods."""
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
        held = sorted((each.pod.uid, each.node_name) for each in ledger.list_reservations())
        return ledger.generation, ledger.list_nodes(), held, sorted(pod.uid for pod in ledger.list_pods())

    def _problem(self) -> str:
        return self.problem or self.freshness.find_unready_reason()

    def _view(self) -> LedgerSnapshot:
        ledger = self.ledger
        return LedgerSnapshot(
            nodes=tuple(ledger.list_nodes()),
            pods=tuple(ledger.list_pods()),
            reservations=tuple(ledger.list_reservations()),
            drift_units={},
            last_activity_at=dict(self.freshness.last_activity_at),
            is_synced=not self._problem(),
            now=time.monotonic(),
        )


async def call_asgi(
    app: ASGIApp, method: str, path: str, body: bytes = b"", headers: Sequence[tuple[bytes, bytes]] = ()
) -> AsgiReply:
    """One request through the application's own door, as a server hands it over."""
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
        "query_string": b"",
        "headers": [*headers, (b"content-length", str(len(body)).encode())],
        "client": ("127.0.0.1", 40000),
        "server": ("127.0.0.1", 12345),
    }
    await app(scope, receive, send)
    received = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return AsgiReply(sent[0]["status"], received, b"".join(message.get("body", b"") for message in sent[1:]))
