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
from typing import NamedTuple

from extender.autoscaling.node_marks import AUTOSCALER_KEYS, ENDED, NodeMark, NodeMarks, Protection
from extender.autoscaling.node_rules import NodeRules
from extender.autoscaling.plan_pace import compute_pause
from extender.autoscaling.stranded_nodes import find_stranded_nodes
from extender.autoscaling.write_turn import BACKOFF, WriteTurn
from extender.events import EventReason, ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.settings import AutoscalingSettings
from extender.state.ledger import Ledger
from vrampack.cards.well_known import KEPT_FROM_AUTOSCALERS
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.timestamps import format_time

log = logging.getLogger(__name__)

CHECK_INTERVAL_SECONDS = 1.0
WRITES_PER_ROUND = 2
LIFT_SECONDS = 60.0
"""For so long a kept node's pods must have found cards elsewhere: places come and go."""
CALL_SECONDS = 5.0


class _Change(NamedTuple):
    name: str
    to: Protection


class NodeProtection:
    """Looks every second."""

    def __init__(  # noqa: PLR0913 - what it needs, each named
        self,
        ledger: Ledger,
        marks: NodeMarks,
        rules: NodeRules,
        api: Api,
        events: ExtenderEventRecorder,
        metrics: ExtenderMetrics,
        *,
        turn: WriteTurn,
        settings: AutoscalingSettings,
        clock: Callable[[], float],
        cpu_clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        """`clock` and `cpu_clock` count seconds; `now` is Unix time."""
        self._marks = marks
        self._rules = rules
        self._ledger = ledger
        self._api = api
        self._events = events
        self._metrics = metrics
        self._turn = turn
        self._settings = settings
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._now = now
        self._stranded: set[str] = set()
        self._unstranded_since: dict[str, float] = {}
        """When a kept node was first found not to be stranded any more."""
        self._next_plan_at = 0.0
        self._planned: tuple[int, int] | None = None
        self._put_off: dict[str, tuple[float, int]] = {}
        """Nodes whose last write was refused: when to try again, and how often in a row."""

    def needs_lease(self) -> bool:
        """Whether there is anything to keep, or to take back."""
        return self._is_wanted or bool(self._marks.count_own())

    @property
    def _is_wanted(self) -> bool:
        protect = self._settings.protect
        return protect == "always" or (protect == "auto" and self._marks.has_autoscaler)

    async def run(self) -> None:
        """Keep what has to be kept, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            await self.check_nodes()

    async def check_nodes(self) -> None:
        """One round."""
        self._count_marks()
        if not self._turn.may_write():
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
            if self._turn.may_write():
                await self._write(change)

    async def _plan(self) -> None:
        if not self._is_wanted:
            self._stranded, self._planned = set(), None
            return
        seen = (self._ledger.generation, self._rules.generation)
        if seen != self._planned and self._clock() >= self._next_plan_at:
            began, self._planned = self._cpu_clock(), seen
            self._rules.forget_old_verdicts()
            self._stranded = await find_stranded_nodes(self._ledger, self._rules)
            self._next_plan_at = self._clock() + compute_pause(self._cpu_clock() - began)

    def _list_changes(self) -> Iterator[_Change]:
        """Nodes to keep first."""
        for name in sorted(self._stranded):
            mark = self._marks.get_mark(name)
            if mark.state is Protection.FREE and self._ledger.get_node(name) is not None:
                yield _Change(name, Protection.KEPT)
            elif mark.state is Protection.KEPT and self._now() >= mark.since + self._settings.max_hours * 3600:
                yield _Change(name, Protection.ENDED)
        now, before = self._clock(), self._unstranded_since
        own = [name for name, mark in sorted(self._marks.list_marks().items()) if mark.is_ours]
        self._unstranded_since = {name: before.get(name, now) for name in own if name not in self._stranded}
        for name, since in self._unstranded_since.items():
            if not self._is_wanted or now >= since + LIFT_SECONDS:
                yield _Change(name, Protection.FREE)

    async def _write(self, change: _Change) -> None:
        """With the version that was seen: what somebody has written since stays, and the next look decides again."""
        metadata = {"annotations": self._build_annotations(change.to)}
        body = {"metadata": metadata | {"resourceVersion": self._marks.get_version(change.name)}}
        try:
            await self._api.patch_node(change.name, body, timeout_seconds=CALL_SECONDS)
        except (RefusedError, NoAnswerError) as error:
            self._note_failure(change, error)
            return
        self._turn.note_success()
        self._put_off.pop(change.name, None)
        if self._ledger.get_node(change.name) is not None:
            self._marks.put_mark(change.name, NodeMark(change.to, self._now()))
        self._metrics.node_protections.labels(change.to.value).inc()
        log.info("node annotations written node=%s to=%s", change.name, change.to.value)
        self._record_event(change)

    def _note_failure(self, change: _Change, error: RefusedError | NoAnswerError) -> None:
        self._metrics.node_protections.labels("failed").inc()
        log.warning("node annotations not written node=%s to=%s error=%s", change.name, change.to.value, error)
        if self._turn.note_failure(error):
            return
        if isinstance(error, RefusedError) and error.status == HTTPStatus.NOT_FOUND:
            self._marks.remove_node(change.name)
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
        states = [mark.state for mark in self._marks.list_marks().values()]
        for state in (Protection.KEPT, Protection.ENDED, Protection.FOREIGN):
            self._metrics.kept_nodes.labels(state.value).set(states.count(state))
