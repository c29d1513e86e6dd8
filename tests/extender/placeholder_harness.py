"""One extender that asks autoscalers for nodes, in rounds at given times, with an API server that has its placeholders."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from extender.autoscaling.autoscaling import Autoscaling
from extender.events import ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.settings import AutoscalingSettings, load_settings
from extender.state.ledger import Ledger
from tests.fakes.api import FakeKubeApi
from tests.support.builders import UNIT_MIB, ledger_pod, node_facts
from tests.support.scripted_readiness import ScriptedReadiness
from vrampack.cards import well_known
from vrampack.cards.node import Share
from vrampack.cards.records import Record
from vrampack.kube.api_caller import Resource
from vrampack.kube.errors import RefusedError
from vrampack.kube.objects import NodeObject, PodObject, to_pod

Json = Any
START = 1_000_000.0
UNITS = 12
"""Fit no card of 8 and 8 free units, by whose sum they fit."""
UNSCHEDULABLE = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]


class PlaceholderApi(FakeKubeApi):
    """Makes and deletes placeholders, unless it is told to refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.placeholders: dict[str, Json] = {}
        self.nodes: dict[str, Json] = {}
        self.refusals = 0
        self.stamp = ""

    async def get_pod_bytes(self, namespace: str, name: str, *, timeout_seconds: float) -> bytes | None:  # noqa: ARG002 - the real one's shape
        pod = self.pods.get((namespace, name))
        return None if pod is None else json.dumps(pod).encode()

    async def list_page(self, resource: Resource, **query: Any) -> bytes:  # noqa: ANN401 - the real one's
        name = query["field_selector"].partition("=")[2]
        kind, items = ("NodeList", [self.nodes[name]]) if resource == "nodes" else ("PodList", [])
        return json.dumps(
            {"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "1"}, "items": items}
        ).encode()

    async def create_pod(self, namespace: str, pod: Mapping[str, object], *, timeout_seconds: float) -> None:  # noqa: ARG002 - the real one's shape
        if self.refusals:
            self.refusals -= 1
            raise RefusedError(403, "Forbidden", "no such right")
        made: Json = json.loads(json.dumps(pod))
        assert made["metadata"]["namespace"] == namespace
        assert made["metadata"]["name"] not in self.placeholders
        made["metadata"]["creationTimestamp"] = self.stamp
        self.placeholders[made["metadata"]["name"]] = made

    async def delete_pod(self, namespace: str, name: str, uid: str, *, timeout_seconds: float) -> None:  # noqa: ARG002 - the real one's shape
        assert (namespace, uid) == (well_known.PLACEHOLDER_NAMESPACE, name)
        del self.placeholders[name]

    async def patch_pod_condition(
        self,
        namespace: str,  # noqa: ARG002 - the real one's shape
        name: str,
        uid: str,  # noqa: ARG002
        condition: Mapping[str, object],
        *,
        timeout_seconds: float,  # noqa: ARG002
    ) -> PodObject:
        self.placeholders[name]["status"] = {"conditions": [condition]}
        return PodObject()


class Leader:
    is_held = True


class PlaceholderHarness:
    """A node with two cards of 16 units, 8 used of each; whatever is written is shown by the watch before the next round."""

    def __init__(self, api: PlaceholderApi | None = None, **settings: object) -> None:
        self.now = START
        self.api = api or PlaceholderApi()
        self.metrics = ExtenderMetrics("test")
        self.ledger = Ledger(unit_mib=UNIT_MIB, clock=lambda: self.now)
        self.lease = Leader()
        autoscaling = AutoscalingSettings.model_validate({"placeholders": "karpenter"} | settings)
        self.autoscaling = Autoscaling(
            self.ledger,
            self.api,
            ExtenderEventRecorder(self.api, self.metrics, clock=lambda: self.now, now=lambda: self.now),
            self.metrics,
            lease=self.lease,
            readiness=ScriptedReadiness(),
            settings=load_settings(None).model_copy(update={"autoscaling": autoscaling}),
            clock=lambda: self.now,
            cpu_clock=lambda: 0.0,
            now=lambda: self.now,
        )
        self._shown: set[str] = set()
        self.add_node("n", used=8)

    def add_node(self, name: str, *, used: int = 0, **labels: str) -> None:
        """A node with an agent."""
        self.ledger.update_node(replace(node_facts(name, 16, 16), offered_units=32, injection="cdi"))
        self.show_agent(name, **labels)
        for card in range(2 if used else 0):
            self.hold(name, card, used)

    def show_agent(self, name: str, **labels: str) -> None:
        """The watch shows the node, whose agent has not said what cards it has."""
        labels |= {well_known.ENFORCEMENT: "native"}
        metadata = {"name": name, "labels": labels, "creationTimestamp": self._stamp()}
        allocatable = {well_known.MEMORY_RESOURCE: "32", "cpu": "8", "pods": "110"}
        self.api.nodes[name] = node = {"metadata": metadata, "status": {"allocatable": allocatable}}
        self.autoscaling.update_node(msgspec.json.decode(json.dumps(node), type=NodeObject))

    def add_pod(self, name: str, units: int = UNITS, *, failed: bool = True, **fields: Json) -> None:
        """A pod that a scheduler could not place."""
        quantities = {well_known.MEMORY_RESOURCE: str(units), "cpu": fields.pop("cpu", "1500m")}
        spec = {"containers": [{"name": "main", "resources": {"limits": quantities, "requests": quantities}}]}
        metadata = {"name": name, "namespace": "default", "uid": name, "creationTimestamp": self._stamp()}
        metadata |= fields.pop("metadata", {})
        status = {"conditions": UNSCHEDULABLE} if failed else {}
        pod = {"metadata": metadata, "spec": spec | fields, "status": status}
        self.api.pods["default", name] = pod
        self._show(pod)

    def hold(self, node: str, card: int, units: int) -> None:
        """A pod has so many units of the card."""
        record = Record("vrampack", (Share(units, f"GPU-{card}", card),))
        self.ledger.update_pod(ledger_pod(f"{node}-{card}", units=units, node=node, record=record))

    def end_pod(self, name: str) -> None:
        for watcher in self.autoscaling.pod_watchers:
            watcher.remove_pod(name)
        self.ledger.remove_pod(name)

    async def at(self, *seconds: float) -> list[str]:
        """The placeholders that there are after rounds at these times."""
        for each in seconds:
            self.now = START + each
            self.api.stamp = self._stamp()
            self._show_placeholders()
            await self.autoscaling.placeholders.check_shapes()
        return sorted(self.api.placeholders)

    def count(self, result: str) -> float | None:
        return self.metrics.registry.get_sample_value("vrampack_placeholders_total", {"result": result})

    def _show_placeholders(self) -> None:
        for name in self._shown - self.api.placeholders.keys():
            self.autoscaling.placeholders.remove_pod(name)
        self._shown = set(self.api.placeholders)
        for name, made in self.api.placeholders.items():
            self._show(made | {"metadata": made["metadata"] | {"uid": name}})

    def _show(self, obj: Json) -> None:
        read = msgspec.json.decode(json.dumps(obj), type=PodObject)
        pod = to_pod(read)
        for watcher in self.autoscaling.pod_watchers:
            watcher.update_pod(pod, read.spec)
        if not pod.is_placeholder:
            self.ledger.update_pod(pod)

    def _stamp(self) -> str:
        return datetime.fromtimestamp(self.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
