"""A kicker over a ledger that a test feeds, an API server that takes note of kicks, and the clock that both believe."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace

from extender.evictions import Evictions
from extender.kicks import Attempt, Kicker
from extender.ledger import Ledger
from extender.metrics import Metrics
from extender.nominations import Nominations
from policies.engine import Engine
from policies.tuning import PolicyTuning
from tests.builders import UNIT_MIB, a_pod, node_facts
from tests.fakes.api import ApiInMemory
from vrampack.cards.allocation import allocate
from vrampack.cards.node import NodeFacts, Share
from vrampack.cards.pod import Pod
from vrampack.cards.records import Record


class Door(ApiInMemory):
    """Takes every kick, but those of the pods named in `errors`."""

    def __init__(self) -> None:
        super().__init__()
        self.kicked: list[str] = []
        self.values: list[str] = []
        self.errors: dict[str, Exception] = {}
        self._told = asyncio.Condition()

    async def kicked_so_many(self, count: int) -> None:
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
    ) -> None:
        if name in self.errors:
            raise self.errors[name]
        self.kicked.append(name)
        self.values.append(annotations["vrampack.dev/retry"])
        async with self._told:
            self._told.notify_all()


class Stage:
    """Nodes `n`, `m`, .. of one card of 15 units unless they are put otherwise; pods by name."""

    def __init__(self, *nodes: str) -> None:
        self.seconds = 1000.0
        self.problem = ""
        self.door = Door()
        self.metrics = Metrics("test")
        self.ledger = Ledger(unit_mib=UNIT_MIB, clock=lambda: self.seconds, report=lambda _: None)
        self.evictions = Evictions(pod_of=self.ledger.pod, clock=lambda: self.seconds)
        nominations = Nominations(self.ledger, self.evictions)
        self.kicker = Kicker(
            ledger=self.ledger,
            engine=Engine(nominations, PolicyTuning()),
            nominations=nominations,
            api=self.door,
            metrics=self.metrics,
            problem=lambda: self.problem,
            clock=lambda: self.seconds,
            started_ns=7,
        )
        self.ledger.listen(self.kicker)
        for name in nodes:
            self.put(node_facts(name, 15))
            self.fill(name)

    def put(self, facts: NodeFacts) -> None:
        self.ledger.node_changed(facts)

    def fill(self, node: str, units: int = 15) -> None:
        """A pod `on-<node>` holds so much of card 0."""
        record = Record("vrampack", (Share(units, "GPU-0", 0),))
        self.ledger.pod_changed(a_pod(f"on-{node}", units=units, node=node, record=record))

    def free(self, node: str) -> None:
        self.ledger.pod_gone(f"on-{node}")

    def arrive(self, name: str, units: int = 15, *, priority: int = 0, created: str = "") -> Pod:
        pod = a_pod(name, units=units, priority=priority, created=created)
        self.ledger.pod_changed(pod)
        return pod

    def refuse(self, name: str, *, nodes: Collection[str] = ("n", "m")) -> None:
        """Filter is called for the pod and says no to all of these nodes."""
        self.kicker.called()
        self.kicker.filtered(name, nodes, fits=False)

    def admit(self, name: str) -> None:
        self.kicker.called()
        self.kicker.filtered(name, ["n"], fits=True)

    def wait(self, name: str, units: int = 15, *, priority: int = 0, created: str = "") -> Pod:
        """A pod that arrived and was refused."""
        pod = self.arrive(name, units, priority=priority, created=created)
        self.refuse(name)
        return pod

    def assume(self, pod: Pod, node_name: str) -> None:
        node = self.ledger.node(node_name)
        if node is None or pod.ask is None:
            raise ValueError(f"nothing to assume: {pod} on {node_name}")
        self.ledger.assume(pod, node_name, allocate(node, node.cards[: pod.ask.request.count], pod.ask))

    def bound(self, pod: Pod, node: str) -> None:
        units = pod.ask.request.units if pod.ask else 0
        self.ledger.pod_changed(replace(pod, node_name=node, record=Record("vrampack", (Share(units, "GPU-0", 0),))))

    async def round(self) -> list[str]:
        """One round: whom it kicked, in order."""
        return [attempt.pod.name for attempt in await self.round_of_attempts()]

    async def round_of_attempts(self) -> list[Attempt]:
        before = len(self.door.kicked)
        chosen = await self.kicker.plan()
        await self.kicker.kick(chosen)
        done = set(self.door.kicked[before:])
        return [attempt for attempt in chosen if attempt.pod.name in done]

    def ended(self, result: str) -> int:
        return int(self.metrics.kicks.labels(result)._value.get())

    def flushed(self) -> int:
        return int(self.metrics.bound_after_flush._value.get())
