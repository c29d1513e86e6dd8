"""The extender's deciding parts over an API server in memory, with a clock of the test's own and a Lease that it holds."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from kubernetes.aio.client import Configuration

from extender.components import build_components
from extender.events import ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.settings import ExtenderConfiguration
from extender.state.ledger import Ledger
from extender.state.sync import Freshness, NodeSink, PodSink, ProblemReporter
from tests.kube.lease_server import LeaseServer
from tests.support.scripted_readiness import ScriptedReadiness
from vrampack.cards.pod import Pod
from vrampack.kube.api_caller import Resource
from vrampack.kube.client import Api
from vrampack.kube.credentials import Credentials
from vrampack.kube.errors import RefusedError
from vrampack.kube.list_page import MAX_OBJECT_BYTES
from vrampack.kube.objects import LeaseObject, NodeObject, PodObject
from vrampack.simulator.apiserver import ApiServer

Json = Any
"""Any: objects as the API server writes them."""
RESOURCE = "aliyun.com/gpu-mem"


class LeasedApi(Api):
    """A client with a Lease of its own, and disruption budgets as a test says."""

    def __init__(self, url: str) -> None:
        super().__init__(Credentials(Configuration(host=url)))
        self.lease = LeaseServer()
        self.refusals: dict[str, Exception] = {}
        """How evictions of pods of these names are answered."""
        self.evicted: list[str] = []
        self.on_dry_run: Callable[[], object] = int
        self.on_eviction: Callable[[], object] = int
        self.on_list: Callable[[str], object] = str
        """Is told the field selector."""

    async def get_lease(self, namespace: str, name: str, *, timeout_seconds: float) -> LeaseObject | None:
        return await self.lease.get_lease(namespace, name, timeout_seconds=timeout_seconds)

    async def patch_lease(
        self, namespace: str, name: str, body: Mapping[str, object], *, timeout_seconds: float
    ) -> None:
        await self.lease.patch_lease(namespace, name, body, timeout_seconds=timeout_seconds)

    async def list_page(
        self,
        resource: Resource,
        *,
        limit: int,
        token: str = "",
        max_bytes: int = MAX_OBJECT_BYTES,
        field_selector: str = "",
        namespace: str = "",
    ) -> bytes:
        self.on_list(field_selector)
        return await super().list_page(
            resource,
            limit=limit,
            token=token,
            max_bytes=max_bytes,
            field_selector=field_selector,
            namespace=namespace,
        )

    async def evict(
        self, namespace: str, name: str, uid: str, *, timeout_seconds: float, is_dry_run: bool = False
    ) -> None:
        if name in self.refusals:
            raise self.refusals[name]
        await super().evict(namespace, name, uid, timeout_seconds=timeout_seconds, is_dry_run=is_dry_run)
        if is_dry_run:
            self.on_dry_run()
        else:
            self.evicted.append(name)
            self.on_eviction()


class ToldEvents(ExtenderEventRecorder):
    """Remembers what it was to write."""

    def __init__(self, api: Api, metrics: ExtenderMetrics) -> None:
        super().__init__(api, metrics, clock=lambda: 0.0, now=lambda: 0.0)
        self.told: list[tuple[str, str, str]] = []

    def record_pod_event(self, pod: Pod, reason: str, text: str, *, is_warning: bool = True) -> None:  # noqa: ARG002 - the real one's shape
        self.told.append((pod.name, reason, text))


class CardPreemptionBench:
    """One process over one API server."""

    def __init__(self, server: ApiServer, api: LeasedApi, **preemption: object) -> None:
        self.now = 0.0
        self.server, self.api = server, api
        self.readiness = ScriptedReadiness()
        self.metrics = ExtenderMetrics("test")
        self.events = ToldEvents(api, self.metrics)
        settings = ExtenderConfiguration.model_validate(
            {"apiVersion": "vrampack.dev/v1", "kind": "ExtenderConfiguration", "preemption": preemption}
        )
        reporter = ProblemReporter(self.metrics, self.events)
        self.ledger = Ledger(unit_mib=settings.unit_mib, clock=lambda: self.now, placement=settings.build_placement())
        freshness = Freshness(clock=lambda: self.now, now=lambda: 0.0, stale_seconds=120)
        self._pods = PodSink(self.ledger, freshness, reporter, self.metrics, RESOURCE)
        self._nodes = NodeSink(self.ledger, freshness, reporter, self.metrics, settings)
        self.parts = build_components(
            ledger=self.ledger,
            api=api,
            events=self.events,
            reporter=reporter,
            metrics=self.metrics,
            settings=settings,
            readiness=self.readiness,
            clock=lambda: self.now,
            now_ns=lambda: 0,
        )
        self.see_changes()

    def see_changes(self) -> None:
        """As the watches show them: list everything again."""
        for sink in (self._nodes, self._pods):
            sink.on_list_started("start")
            sink.on_contact()
        self._nodes.on_page(
            [msgspec.json.decode(json.dumps(each), type=NodeObject) for each in self.server.list_nodes()]
        )
        self._pods.on_page([msgspec.json.decode(json.dumps(each), type=PodObject) for each in self.server.list_pods()])
        self._nodes.on_list_finished()
        self._pods.on_list_finished()

    def filter_pod(self, name: str) -> list[str]:
        """The nodes that pass, of all."""
        names = [node["metadata"]["name"] for node in self.server.list_nodes()]
        body = {"Pod": self.server.get("pods", name), "NodeNames": names}
        answer = json.loads(self.parts.verbs.filter(json.dumps(body).encode()).body)
        return list(answer["NodeNames"] or [])

    async def pass_time(self, seconds: int) -> None:
        """A round each second; the Lease is renewed, and the watches show what is new."""
        for _ in range(seconds):
            self.now += 1
            await self.parts.preemption_lease.renew()
            self.see_changes()
            await self.parts.card_preemptor.do_round()
            self.see_changes()

    def count_results(self) -> dict[str, float]:
        (family,) = self.metrics.card_preemptions.collect()
        samples = [each for each in family.samples if each.name.endswith("_total")]
        return {each.labels["result"]: each.value for each in samples if each.value}

    def list_told(self, name: str) -> list[str]:
        """The reasons of the events about this pod."""
        return [reason for pod, reason, _ in self.events.told if pod == name]


@asynccontextmanager
async def open_bench(*objects: Json, by_card: str = "act", **settings: object) -> AsyncIterator[CardPreemptionBench]:
    async with ApiServer() as server:
        for each in objects:
            server.restore(each)
        api = LeasedApi(server.url)
        try:
            yield CardPreemptionBench(server, api, by_card=by_card, **settings)
        finally:
            await api.close()


def a_node(name: str = "n", **spec: Json) -> Json:
    """Two cards of 8 units."""
    allocatable = {RESOURCE: "16", "aliyun.com/gpu-count": "2", "pods": "20", "cpu": "8"}
    return {"kind": "Node", "metadata": {"name": name}, "spec": spec, "status": {"allocatable": allocatable}}


def a_pod(name: str, units: int, *, node: str = "", card: int = 0, priority: int = 1, **fields: Json) -> Json:
    """Of `node`, if any is given, on one of its cards. `fields` are metadata and `spec`."""
    record = {"scheduler.framework.gpushare.allocation": f'{{"0":{{"{card}":{units}}}}}'} if node else {}
    container = {"name": "main", "resources": {"limits": {RESOURCE: str(units)}, "requests": {RESOURCE: str(units)}}}
    spec = {"priority": priority, "schedulerName": "vrampack", "containers": [container], **fields.pop("spec", {})}
    annotations = record | fields.pop("annotations", {})
    return {
        "kind": "Pod",
        "metadata": {"name": name, "uid": name, "annotations": annotations, **fields},
        "spec": spec | ({"nodeName": node} if node else {}),
        "status": {"phase": "Running" if node else "Pending"},
    }


def half_full(node: str = "n", priority: int = 1) -> list[Json]:
    """5 of 8 units used on each of two cards: the totals have 6 free, no card has more than 3."""
    return [a_pod(f"{node}{card}", 5, node=node, card=card, priority=priority + card) for card in (0, 1)]


async def refuse_urgent(bench: CardPreemptionBench) -> None:
    assert bench.filter_pod("urgent") == []
    await bench.pass_time(3)


URGENT = a_pod("urgent", 6, priority=10)
DAEMON: Json = {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}
NO_BUDGET = RefusedError(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
