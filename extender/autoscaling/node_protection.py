"""Writes on Nodes that autoscalers shall leave them alone, and takes that back: what `stranded_nodes.py` finds, and `node_marks.py` reads.

Of several extenders the one that holds the Lease writes, at most two Nodes a second, and nothing while the API server sends
calls away. A node is kept for `max_hours` at most: what keeps an autoscaler from removing a node also keeps it from replacing an
outdated one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import NamedTuple, Protocol

from extender.autoscaling.node_marks import AUTOSCALER_KEYS, ENDED, NodeMark, NodeMarks, Protection
from extender.autoscaling.node_rules import NodeRules
from extender.autoscaling.stranded_nodes import find_stranded_nodes
from extender.events import EventReason, ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.settings import ExtenderConfiguration
from extender.state.ledger import Ledger
from extender.state.sync import ReadinessCheck
from vrampack.backoff import Backoff
from vrampack.cards.well_known import KEPT_FROM_AUTOSCALERS
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.examined_objects import decode_node_spec
from vrampack.kube.objects import NodeObject
from vrampack.kube.retry_backoff import extend_pause
from vrampack.kube.timestamps import format_time

log = logging.getLogger(__name__)

PROTECTION_LEASE = "vrampack-autoscaling"
CHECK_INTERVAL_SECONDS = 1.0
WRITES_PER_ROUND = 2
PLAN_INTERVAL_SECONDS = 5.0
"""Less than Karpenter waits (15 s) before it removes nodes that it has chosen."""
PLAN_SHARE = 0.05
"""Of one CPU, at most, where plans take long."""
LIFT_SECONDS = 60.0
"""For so long a kept node's pods must have found cards elsewhere: places come and go."""
CALL_SECONDS = 5.0
PAUSING_STATUSES = (HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS)
"""No other node can be written either."""
BACKOFF = Backoff(first_seconds=5.0, longest_seconds=300.0)


class Lease(Protocol):
    """Which of several extenders acts."""

    @property
    def is_held(self) -> bool: ...


class _Change(NamedTuple):
    name: str
    to: Protection


class NodeProtection:
    """Looks every second. It is fed every node."""

    def __init__(  # noqa: PLR0913 - what it needs, each named
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
        self.marks = NodeMarks()
        self.rules = NodeRules(settings.resources.memory)
        """The owner feeds all pods to it, where `follows_rules`."""
        self.follows_rules = settings.autoscaling.protect != "never"
        """Whether anybody may ever ask which nodes a pod may use."""
        self._ledger = ledger
        self._api = api
        self._events = events
        self._metrics = metrics
        self._lease = lease
        self._readiness = readiness
        self._settings = settings.autoscaling
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._now = now
        self._stranded: set[str] = set()
        self._unstranded_since: dict[str, float] = {}
        """When a kept node was first found not to be stranded any more."""
        self._next_plan_at = 0.0
        self._planned: tuple[int, int] | None = None
        self._paused_until = 0.0
        self._failures = 0
        """In a row, of the API server."""
        self._put_off: dict[str, tuple[float, int]] = {}
        """Nodes whose last write was refused: when to try again, and how often in a row."""

    def update_node(self, obj: NodeObject) -> None:
        spec = decode_node_spec(obj)
        self.marks.update_node(obj, spec)
        if self.follows_rules:
            self.rules.update_node(obj, spec)

    def remove_node(self, name: str) -> None:
        self.marks.remove_node(name)
        self.rules.remove_node(name)

    def needs_lease(self) -> bool:
        """Whether there is anything to keep, or to take back."""
        return self._is_wanted or bool(self.marks.count_own())

    @property
    def _is_wanted(self) -> bool:
        protect = self._settings.protect
        return protect == "always" or (protect == "auto" and self.marks.has_autoscaler)

    async def run(self) -> None:
        """Keep what has to be kept, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            await self.check_nodes()

    async def check_nodes(self) -> None:
        """One round."""
        self._count_marks()
        if not self._may_write():
            return
        await self._plan()
        self._put_off = {name: each for name, each in self._put_off.items() if self._ledger.get_node(name) is not None}
        now = self._clock()
        due = [
            each
            for each in self._list_changes()
            if each.name not in self._put_off or self._put_off[each.name][0] <= now
        ]
        for change in due[:WRITES_PER_ROUND]:
            if self._may_write():
                await self._write(change)

    def _may_write(self) -> bool:
        is_paused = self._clock() < self._paused_until
        return self._lease.is_held and not is_paused and not self._readiness.find_unready_reason()

    async def _plan(self) -> None:
        if not self._is_wanted:
            self._stranded, self._planned = set(), None
            return
        seen = (self._ledger.generation, self.rules.generation)
        if seen != self._planned and self._clock() >= self._next_plan_at:
            began, self._planned = self._cpu_clock(), seen
            self.rules.forget_old_verdicts()
            self._stranded = await find_stranded_nodes(self._ledger, self.rules)
            pause = max(PLAN_INTERVAL_SECONDS, (self._cpu_clock() - began) / PLAN_SHARE)
            self._next_plan_at = self._clock() + pause

    def _list_changes(self) -> Iterator[_Change]:
        """Nodes to keep first."""
        for name in sorted(self._stranded):
            mark = self.marks.get_mark(name)
            if mark.state is Protection.FREE and self._ledger.get_node(name) is not None:
                yield _Change(name, Protection.KEPT)
            elif mark.state is Protection.KEPT and self._now() >= mark.since + self._settings.max_hours * 3600:
                yield _Change(name, Protection.ENDED)
        now, before = self._clock(), self._unstranded_since
        own = [name for name, mark in sorted(self.marks.list_marks().items()) if mark.is_ours]
        self._unstranded_since = {name: before.get(name, now) for name in own if name not in self._stranded}
        for name, since in self._unstranded_since.items():
            if not self._is_wanted or now >= since + LIFT_SECONDS:
                yield _Change(name, Protection.FREE)

    async def _write(self, change: _Change) -> None:
        """With the version that was seen: what somebody has written since stays, and the next look decides again."""
        metadata = {"annotations": self._build_annotations(change.to)}
        body = {"metadata": metadata | {"resourceVersion": self.marks.get_version(change.name)}}
        try:
            await self._api.patch_node(change.name, body, timeout_seconds=CALL_SECONDS)
        except (RefusedError, NoAnswerError) as error:
            self._note_failure(change, error)
            return
        self._failures = 0
        self._put_off.pop(change.name, None)
        if self._ledger.get_node(change.name) is not None:
            self.marks.put_mark(change.name, NodeMark(change.to, self._now()))
        self._metrics.node_protections.labels(change.to.value).inc()
        log.info("node annotations written node=%s to=%s", change.name, change.to.value)
        self._record_event(change)

    def _note_failure(self, change: _Change, error: RefusedError | NoAnswerError) -> None:
        self._metrics.node_protections.labels("failed").inc()
        log.warning("node annotations not written node=%s to=%s error=%s", change.name, change.to.value, error)
        if isinstance(error, NoAnswerError) or error.status in PAUSING_STATUSES:
            self._failures += 1
            self._paused_until = self._clock() + extend_pause(BACKOFF.compute_seconds(self._failures), error)
            return
        if error.status == HTTPStatus.NOT_FOUND:
            self.marks.remove_node(change.name)
        failures = self._put_off.get(change.name, (0.0, 0))[1] + 1
        self._put_off[change.name] = (self._clock() + BACKOFF.compute_seconds(failures), failures)

    def _build_annotations(self, state: Protection) -> dict[str, str | None]:
        """None takes an annotation away."""
        if state is Protection.KEPT:
            return {KEPT_FROM_AUTOSCALERS: format_time(self._now()), **dict.fromkeys(AUTOSCALER_KEYS, "true")}
        return {KEPT_FROM_AUTOSCALERS: ENDED if state is Protection.ENDED else None, **dict.fromkeys(AUTOSCALER_KEYS)}

    def _record_event(self, change: _Change) -> None:
        if change.to is Protection.KEPT:
            text = "autoscalers leave it alone: its pods would fit elsewhere by the nodes' sums, and find no card"
            self._events.record_node_event(change.name, EventReason.KEPT_FROM_AUTOSCALERS, text)
        elif change.to is Protection.ENDED:
            text = (
                f"autoscalers may remove it again after {self._settings.max_hours:g} hours, although its pods would find no card "
                "elsewhere; it is not kept again before they would"
            )
            self._events.record_node_event(change.name, EventReason.NOT_KEPT_FROM_AUTOSCALERS, text)

    def _count_marks(self) -> None:
        states = [mark.state for mark in self.marks.list_marks().values()]
        for state in (Protection.KEPT, Protection.ENDED, Protection.FOREIGN):
            self._metrics.kept_nodes.labels(state.value).set(states.count(state))
