"""All that is done about autoscalers, over what the watches show of nodes and pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from extender.autoscaling.node_marks import NodeMarks
from extender.autoscaling.node_protection import NodeProtection
from extender.autoscaling.node_rules import NodeRules
from extender.autoscaling.placeholders import Placeholders
from extender.autoscaling.write_turn import Lease, WriteTurn
from extender.events import ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.settings import ExtenderConfiguration
from extender.state.ledger import Ledger
from extender.state.sync import PodWatcher, ReadinessCheck
from vrampack.kube.client import Api
from vrampack.kube.examined_objects import decode_node_spec
from vrampack.kube.objects import NodeObject

LEASE_NAME = "vrampack-autoscaling"


class Autoscaling:
    """Is fed every node, and what it gives to the watch of pods is fed every pod that asks for cards."""

    def __init__(  # noqa: PLR0913 - what its parts share
        self,
        ledger: Ledger,
        api: Api,
        events: ExtenderEventRecorder,
        metrics: ExtenderMetrics,
        *,
        lease: Lease,
        readiness: ReadinessCheck,
        settings: ExtenderConfiguration,
        clock: Callable[[], float],
        cpu_clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        """`clock` and `cpu_clock` count seconds; `now` is Unix time."""
        self._marks = NodeMarks()
        self._rules = NodeRules(settings.resources.memory)
        self._follows_rules = settings.autoscaling.follows_rules
        turn = WriteTurn(lease, readiness, clock=clock)
        self.protection = NodeProtection(
            ledger,
            self._marks,
            self._rules,
            api,
            events,
            metrics,
            turn=turn,
            settings=settings.autoscaling,
            clock=clock,
            cpu_clock=cpu_clock,
            now=now,
        )
        self.placeholders = Placeholders(
            ledger,
            self._rules,
            api,
            events,
            metrics,
            turn=turn,
            settings=settings.autoscaling,
            clock=clock,
            cpu_clock=cpu_clock,
            now=now,
        )

    @property
    def pod_watchers(self) -> Sequence[PodWatcher]:
        """Placeholders of an earlier process are found whatever the settings are."""
        return (self._rules, self.placeholders) if self._follows_rules else (self.placeholders,)

    def update_node(self, obj: NodeObject) -> None:
        spec = decode_node_spec(obj)
        self._marks.update_node(obj, spec)
        if self._follows_rules:
            self._rules.update_node(obj, spec)

    def remove_node(self, name: str) -> None:
        self._marks.remove_node(name)
        self._rules.remove_node(name)

    def needs_lease(self) -> bool:
        """Whether there is anything to write, or to take back."""
        return self.protection.needs_lease() or self.placeholders.needs_lease()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.protection.run())
            group.create_task(self.placeholders.run())
