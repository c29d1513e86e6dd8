"""A kicker over a ledger that a test feeds, an API server that records kicks, and the clock that both use."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace

from extender.components import LedgerReactions
from extender.events import ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.policy_settings import PolicyTuning
from extender.requeue.activator import Activation, PodActivator
from extender.scheduling.cache_rebuild import CacheRebuild
from extender.scheduling.engine_follower import EngineFollower
from extender.scheduling.mix_learner import MixLearner
from extender.state.group_fit import GroupFit
from extender.state.host_usage import HostUsage
from extender.state.ledger import Ledger
from extender.state.node_labels import NodeLabels
from extender.state.nominator import Nominator
from extender.state.pending_preemptions import PendingPreemptions
from extender.state.pod_client import PodClient
from extender.state.pod_groups import PodGroups
from extender.state.soft_reservations import SoftReservations
from extender.state.sync import ProblemReporter
from policies.engine.engine import Engine
from tests.fakes.api import FakeKubeApi
from tests.support.builders import UNIT_MIB, ledger_pod, node_facts
from tests.support.manifest_builders import RESOURCE
from tests.support.scripted_readiness import ScriptedReadiness
from vrampack.cards.allocation import allocate_cards
from vrampack.cards.node import NodeFacts, Share
from vrampack.cards.pod import Pod
from vrampack.cards.records import Record
from vrampack.kube.objects import ObjectMeta, PodObject


class ActivationApi(FakeKubeApi):
    """Takes every kick, but those of the pods named in `errors`."""

    def __init__(self) -> None:
        super().__init__()
        self.kicked: list[str] = []
        self.values: list[str] = []
        self.errors: dict[str, Exception] = {}
        self._told = asyncio.Condition()

    async def wait_for_activations(self, count: int) -> None:
        async with asyncio.timeout(5), self._told:
            await self._told.wait_for(lambda: len(self.kicked) >= count)

    async def patch_pod_status(
        self,
        namespace: str,  # noqa: ARG002 - the real one's shape
        name: str,
        uid: str,  # noqa: ARG002 - the real one's shape
        annotations: Mapping[str, str],
        *,
        timeout_seconds: float,  # noqa: ARG002 - the real one's shape
    ) -> PodObject:
        """The answer names no uid: the ledger learns nothing from it that a test did not feed."""
        if name in self.errors:
            raise self.errors[name]
        self.kicked.append(name)
        self.values.append(annotations["vrampack.dev/retry"])
        async with self._told:
            self._told.notify_all()
        return PodObject(metadata=ObjectMeta(name=name))


class ActivatorHarness:
    """Nodes `n`, `m`, .. with one card of 15 units unless a test puts others; pods by name."""

    def __init__(self, *nodes: str) -> None:
        self.seconds = 1000.0
        self.readiness = ScriptedReadiness()
        self.door = ActivationApi()
        self.metrics = ExtenderMetrics("test")
        self.ledger = Ledger(unit_mib=UNIT_MIB, clock=lambda: self.seconds)
        self.evictions = PendingPreemptions(self.ledger, clock=lambda: self.seconds)
        nominations = Nominator(self.ledger, self.evictions)
        engine = Engine(nominations, PolicyTuning())
        self.kicker = PodActivator(
            ledger=self.ledger,
            engine=engine,
            nominator=nominations,
            pods=PodClient(
                self.ledger,
                self.door,
                resource=RESOURCE,
                clock=lambda: self.seconds,
                started_ns=7,
                hosts=HostUsage(is_kept=False),
            ),
            group_fit=GroupFit(self.ledger, PodGroups(), NodeLabels()),
            metrics=self.metrics,
            readiness=self.readiness,
            clock=lambda: self.seconds,
        )
        events = ExtenderEventRecorder(self.door, self.metrics, clock=lambda: self.seconds, now=lambda: 0.0)
        reactions = LedgerReactions(
            self.kicker,
            SoftReservations(lambda: self.seconds, self.ledger.places.list_held_places_of),
            ProblemReporter(self.metrics, events),
            EngineFollower(engine, nominations),
            MixLearner(self.ledger, engine),
            CacheRebuild(self.metrics, lambda: self.seconds),
        )
        self.ledger.add_listener(reactions)
        for name in nodes:
            self.put_node(node_facts(name, 15))
            self.fill_node(name)

    def put_node(self, facts: NodeFacts) -> None:
        self.ledger.update_node(facts)

    def fill_node(self, node: str, units: int = 15) -> None:
        """A pod `on-<node>` holds so much of card 0."""
        record = Record("vrampack", (Share(units, "GPU-0", 0),))
        self.ledger.update_pod(ledger_pod(f"on-{node}", units=units, node=node, record=record))

    def free_node(self, node: str) -> None:
        self.ledger.remove_pod(f"on-{node}")

    def add_pending_pod(self, name: str, units: int = 15, *, priority: int = 0, created: str = "") -> Pod:
        pod = ledger_pod(name, units=units, priority=priority, created=created)
        self.ledger.update_pod(pod)
        return pod

    def reject_pod(self, name: str, *, nodes: Collection[str] = ("n", "m")) -> None:
        """Filter is called for the pod and rejects all of these nodes."""
        self.kicker.on_filter_called("vrampack")
        self.kicker.on_filter_answered(name, nodes, fits=False)

    def accept_pod(self, name: str) -> None:
        self.kicker.on_filter_called("vrampack")
        self.kicker.on_filter_answered(name, ["n"], fits=True)

    def add_rejected_pod(self, name: str, units: int = 15, *, priority: int = 0, created: str = "") -> Pod:
        """A pod that arrived and was refused."""
        pod = self.add_pending_pod(name, units, priority=priority, created=created)
        self.reject_pod(name)
        return pod

    def assume_pod(self, pod: Pod, node_name: str) -> None:
        node = self.ledger.get_node(node_name)
        if node is None or pod.request is None:
            raise ValueError(f"nothing to assume: {pod} on {node_name}")
        self.ledger.assume(
            pod, node_name, allocate_cards(node, node.cards[: pod.request.card_request.count], pod.request)
        )

    def confirm_binding(self, pod: Pod, node: str) -> None:
        units = pod.request.card_request.units if pod.request else 0
        self.ledger.update_pod(replace(pod, node_name=node, record=Record("vrampack", (Share(units, "GPU-0", 0),))))

    async def run_round(self) -> list[str]:
        """Runs one round and returns the pods it activated, in order."""
        return [attempt.pod.name for attempt in await self.run_round_attempts()]

    async def run_round_attempts(self) -> list[Activation]:
        before = len(self.door.kicked)
        chosen = await self.kicker.choose_activations()
        await self.kicker.activate_pods(chosen)
        done = set(self.door.kicked[before:])
        return [attempt for attempt in chosen if attempt.pod.name in done]

    def count_results(self, result: str) -> int:
        return int(self.metrics.activations.labels(result)._value.get())

    def count_flushed(self) -> int:
        return int(self.metrics.bound_after_flush._value.get())
