"""The verbs over a ledger that a test feeds, with an API server in memory and one clock for all of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from extender.components import build_components
from extender.events import ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.rule_settings import RuleSettings
from extender.settings import DecidingVerb, DecisionSettings, ExtenderConfiguration, HoldSettings
from extender.state.ledger import Ledger
from extender.state.node_labels import NodeLabels
from extender.state.sync import ProblemReporter
from policies.policy import ScoredCards
from tests.fakes.api import FakeKubeApi
from tests.support.builders import UNIT_MIB, ledger_pod, node_facts, pod_request
from tests.support.manifest_builders import RESOURCE, reference_env
from tests.support.scripted_readiness import ScriptedReadiness
from vrampack.cards.allocation import Allocation, allocate_cards
from vrampack.cards.node import NodeFacts, Share
from vrampack.cards.pod import Pod
from vrampack.cards.profiles import PlacementSettings
from vrampack.cards.records import Record

Json = dict[str, Any]  # Any: what a scheduler reads, asserted where it is read


class SchedulerHarness:
    """Nodes of these cards of so many units; pods by name, which is their uid."""

    def __init__(
        self,
        nodes: Mapping[str, Sequence[int]],
        *,
        decide: DecidingVerb = "prioritize",
        rules: RuleSettings | None = None,
        holds: HoldSettings | None = None,
    ) -> None:
        self.seconds = 1000.0
        rules = rules or RuleSettings()
        self.metrics = ExtenderMetrics("test")
        self.ledger = Ledger(unit_mib=UNIT_MIB, clock=self.clock, placement=PlacementSettings(rules.build_rules()))
        self.api = api = FakeKubeApi()
        self.events = events = ExtenderEventRecorder(api, self.metrics, clock=self.clock, now=self.clock)
        settings = ExtenderConfiguration(
            apiVersion="vrampack.dev/v1",
            kind="ExtenderConfiguration",
            decide=DecisionSettings(default=decide),
            rules=rules,
            holds=holds or HoldSettings(),
        )
        self.node_labels = NodeLabels()
        self.parts = build_components(
            ledger=self.ledger,
            api=api,
            events=events,
            reporter=ProblemReporter(self.metrics, events),
            metrics=self.metrics,
            settings=settings,
            readiness=ScriptedReadiness(),
            clock=self.clock,
            now_ns=lambda: 1,
            node_labels=self.node_labels,
        )
        self.names = list(nodes)
        for name, units in nodes.items():
            self.put_node(node_facts(name, *units))

    def clock(self) -> float:
        return self.seconds

    def put_node(self, facts: NodeFacts) -> None:
        self.ledger.update_node(facts)

    def add_bound_pod(self, name: str, node: str, units: int, *, card: int = 0, leaving: bool = False) -> None:
        """A pod of this name holds so much of a card."""
        record = Record("vrampack", (Share(units, f"GPU-{card}", card),))
        self.ledger.update_pod(ledger_pod(name, units=units, node=node, record=record, leaving=leaving))

    def add_pending_pod(self, name: str, units: int = 4, *, priority: int = 0) -> Pod:
        pod = ledger_pod(name, units=units, priority=priority)
        self.ledger.update_pod(pod)
        return pod

    def post_filter(
        self,
        name: str,
        units: int = 4,
        *,
        names: Sequence[str] = (),
        spec: Json | None = None,
        metadata: Json | None = None,
    ) -> Json:
        """`metadata`: fields of the pod's metadata beside its name."""
        answer: Json = json.loads(self.parts.verbs.filter(self.encode_call(name, units, names, spec, metadata)).body)
        assert answer["Error"] == ""
        return answer

    def filter_names(
        self,
        name: str,
        units: int = 4,
        *,
        names: Sequence[str] = (),
        spec: Json | None = None,
        metadata: Json | None = None,
    ) -> list[str]:
        """The nodes that filter lets through."""
        passed: list[str] = self.post_filter(name, units, names=names, spec=spec, metadata=metadata)["NodeNames"]
        return passed

    def filter_and_prioritize(
        self, name: str, units: int = 4, *, names: Sequence[str] = (), spec: Json | None = None
    ) -> str:
        """The node that prioritize names, after filter."""
        passed = self.filter_names(name, units, names=names, spec=spec)
        scores = json.loads(self.parts.verbs.prioritize(self.encode_call(name, units, passed, spec)).body)
        (best,) = [each["Host"] for each in scores if each["Score"] == 10]
        return str(best)

    async def tell_refused(self) -> list[tuple[str, str]]:
        """Reason and text of the events, after two rounds in which refused pods may be told why."""
        self.seconds += 2.0
        for _ in range(2):
            await self.parts.answers.do_round()
            self.seconds += 1.0
        writer = asyncio.create_task(self.events.run())
        await self.events.wait_until_written()
        writer.cancel()
        return [(str(event["reason"]), str(event["message"])) for _, event in self.api.events]

    async def bind(self, name: str, node: str, spec: Json | None = None) -> str:
        """The error of a bind of a pod that the API server has, or has from now on."""
        body = json.loads(self.encode_call(name, spec=spec))["Pod"]
        self.api.pods.setdefault(("default", name), body)
        call = {"PodName": name, "PodNamespace": "default", "PodUID": name, "Node": node}
        answer: Json = json.loads((await self.parts.verbs.bind(json.dumps(call).encode())).body)
        return str(answer["Error"])

    def choose_cards(self, name: str, node: str, units: int = 4) -> list[int]:
        """The cards that bind would choose on this node, by index; none where the pod does not fit."""
        judged = self.parts.engine.evaluate_node(node, pod_request(units), name)
        return [card.index for card in judged.cards] if isinstance(judged, ScoredCards) else []

    def allocation(self, pod: Pod, node: str, card: int) -> Allocation:
        """What the pod asks, on this card."""
        found = self.ledger.get_node(node)
        if found is None or pod.request is None:
            raise ValueError(f"nothing to allocate: {pod} on {node}")
        return allocate_cards(found, [found.cards[card]], pod.request)

    async def preempt(
        self,
        name: str,
        units: int,
        proposal: Mapping[str, Sequence[str]],
        *,
        priority: int = 0,
        nominated_node: str = "",
    ) -> dict[str, list[str]]:
        """The victims preempt names, by node, for these proposals of the scheduler."""
        body = json.loads(self.encode_call(name, units, (), {"priority": priority}))
        status = {"nominatedNodeName": nominated_node}
        victims = {node: {"Pods": [{"UID": uid} for uid in uids]} for node, uids in proposal.items()}
        args = {"Pod": body["Pod"] | {"status": status}, "NodeNameToMetaVictims": victims}
        answer = json.loads((await self.parts.preemption.preempt(json.dumps(args).encode())).body)
        return {
            node: [each["UID"] for each in named["Pods"]] for node, named in answer["NodeNameToMetaVictims"].items()
        }

    def encode_call(
        self,
        name: str,
        units: int = 4,
        names: Sequence[str] = (),
        spec: Json | None = None,
        metadata: Json | None = None,
    ) -> bytes:
        """What a scheduler sends to filter and prioritize; all nodes where it names none."""
        container = {
            "name": "main",
            "resources": {"limits": {RESOURCE: str(units)}},
            "env": [reference_env("main")],
        }
        pod = {
            "metadata": {"name": name, "namespace": "default", "uid": name} | (metadata or {}),
            "spec": {"schedulerName": "vrampack", "containers": [container]} | (spec or {}),
        }
        return json.dumps({"Pod": pod, "NodeNames": list(names or self.names)}).encode()
