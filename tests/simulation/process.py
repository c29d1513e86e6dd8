"""One extender, wired as `extender.app` wires it, on a loop, an Api and a clock of the simulation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from extender.components import build_components
from extender.events import ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.settings import ExtenderConfiguration
from extender.state.host_usage import HostUsage
from extender.state.ledger import Ledger
from extender.state.sync import DriftCheck, Freshness, ProblemReporter, ReadinessCheck, build_reflectors
from tests.simulation.api import Network, SimulatedApi
from tests.simulation.loop import SimulatedLoop
from tests.support.builders import UNIT_MIB
from vrampack.simulator.object_store import ObjectStore

RESOURCE = "aliyun.com/gpu-mem"


class SimulatedExtender:
    """A service that has just started: it knows nothing."""

    def __init__(
        self,
        name: str,
        *,
        store: ObjectStore,
        network: Network,
        metrics: ExtenderMetrics,
        settings: ExtenderConfiguration,
        clock: Callable[[], float],
        is_shuffled: bool,
        hosts: HostUsage | None = None,
    ) -> None:
        self.name = name
        self.loop = loop = SimulatedLoop(clock)
        self.api = api = SimulatedApi(name, store, loop, network, is_shuffled=is_shuffled)
        events = ExtenderEventRecorder(api, metrics, clock=clock, now=clock)
        reporter = ProblemReporter(metrics, events)
        self.ledger = Ledger(unit_mib=UNIT_MIB, clock=clock, placement=settings.build_placement())
        self.freshness = Freshness(clock=clock, now=clock, stale_seconds=settings.deadlines.stale_seconds)
        self.parts = parts = build_components(
            ledger=self.ledger,
            api=api,
            events=events,
            reporter=reporter,
            metrics=metrics,
            settings=settings,
            readiness=ReadinessCheck(self.freshness),
            clock=clock,
            now_ns=lambda: 1_790_000_000_000_000_000 + int(clock() * 1e9),
            hosts=hosts,
        )
        self.engine, self.binder, self.kicker, self.verbs = parts.engine, parts.binder, parts.activator, parts.verbs
        self.recount = DriftCheck(self.ledger)
        self.reflectors = build_reflectors(api, self.ledger, self.freshness, reporter, metrics, settings, hosts=hosts)
        pods, nodes = self.reflectors
        work = (
            pods.run(),
            nodes.run(),
            events.run(),
            self.binder.run(),
            self.recount.run(),
            self.kicker.run(),
            parts.places.run(),
        )
        self.background: list[asyncio.Task[None]] = [loop.create_task(each) for each in work]
        self.seen: object = None
        """What the last comparison with the API was made of; see `invariants`."""

    def crashed(self) -> str:
        """What no process may do: raise in the background, or leave an exception uncaught."""
        for task in self.background:
            if task.done():
                return f"{task.get_coro()} ended: {task.exception()!r}"
        return "; ".join(self.loop.failures)
