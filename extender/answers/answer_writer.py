"""Writes on a refused pod why it was refused: its condition `VrampackPlacement`, and an event.

    refused for 2 s --oldest first, two pods a second--> told --refused for another kind of reason, a minute later--> told again

A pod that was never told comes before those that are told again, whose turns become rarer.

The extender that the pod's scheduler calls is the one that writes. What it wrote stands on the pod, so neither a restart nor
another extender writes it again. At a bind nothing is written: PodScheduled is True then, and the condition is of the past.

A write to a pod has kube-scheduler try that pod once more, and no other: an extender's refusals are ended by any update of the pod.
The same answer is not written twice, so that is all.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from cachetools import LRUCache

from extender.answers.refusal_text import describe_refusal
from extender.answers.untold_pods import UntoldPods
from extender.events import EventReason, ExtenderEventRecorder
from extender.state.group_fit import GroupFit
from extender.state.ledger import Ledger
from extender.state.nominator import Nominator
from extender.state.pod_client import PodClient
from extender.state.sync import ReadinessCheck
from policies.engine.engine import Engine
from vrampack.backoff import Backoff
from vrampack.cards.payment import describe_unpaid
from vrampack.cards.pod import Pod
from vrampack.cards.reasons import UnfitReason
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.retry_backoff import extend_pause

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0
PODS_PER_ROUND = 2
"""A condition and an event each: four writes a second at most."""
PODS_PER_SLICE = 256
"""Are looked at in 0.3 ms."""
PATIENCE_SECONDS = 2.0
"""Room that was just freed, or a preemption, takes less: those pods need no answer."""
REPEAT = Backoff(first_seconds=60.0, longest_seconds=900.0)
"""Between two answers to one pod, whose reason may go back and forth, or whose write may fail each time."""
RECENT_PODS_KEPT = 4096
UNKNOWN_POD_SECONDS = 300.0
"""How long a refused pod may be unknown to the ledger: longer than the ledger may be stale."""
CALL_SECONDS = 5.0
PAUSE_SECONDS = 10.0
"""After the API server took no answer to any pod."""
PAUSING_STATUSES = frozenset({401, 429})
"""No other pod can be told either."""
POD_GONE_STATUSES = frozenset({404, 409, 422})

_EVENTS = {
    UnfitReason.GROUP: EventReason.GROUP_DOES_NOT_FIT,
    UnfitReason.UNPAID: EventReason.WHOLE_CARD_UNPAID,
    UnfitReason.NOT_VALID: EventReason.REQUEST_NOT_VALID,
}


class RefusalAnswer(NamedTuple):
    """Why a pod was refused."""

    reason: UnfitReason
    text: str


class PodTurn(NamedTuple):
    """A pod that was told, or could not be."""

    times: int
    next_at: float


class AnswerWriter:
    """Writes in the background."""

    def __init__(  # noqa: PLR0913 - what an answer is made of
        self,
        *,
        ledger: Ledger,
        nominator: Nominator,
        engine: Engine,
        group_fit: GroupFit,
        pods: PodClient,
        events: ExtenderEventRecorder,
        readiness: ReadinessCheck,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._nominator = nominator
        self._engine = engine
        self._group_fit = group_fit
        self._pods = pods
        self._events = events
        self._readiness = readiness
        self._clock = clock
        self._now = now
        self._untold = UntoldPods(clock)
        self._turns: LRUCache[str, PodTurn] = LRUCache(RECENT_PODS_KEPT)
        self._paused_until = 0.0

    def note_refusal(self, pod: Pod, names: Collection[str], reason: UnfitReason, node_selector: str) -> None:
        """Filter let none of these nodes pass, for this reason on the nearest of them."""
        self._untold.note_refusal(pod.uid, pod.told_reason, reason, names, node_selector)

    def note_passed(self, uid: str) -> None:
        """Filter let a node pass for this pod."""
        self._untold.forget_pod(uid)

    async def run(self) -> None:
        """Do a round every second, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            await self.do_round()

    async def do_round(self) -> None:
        """Tell the pods that were never told, those first that were created first, and then the others."""
        if not self._untold or self._clock() < self._paused_until or self._readiness.find_unready_reason():
            return
        for pod in await self._find_next():
            await self._prepare_pod(pod)
            answer = self._find_answer(pod)
            if answer is not None and answer.reason.condition_reason != pod.told_reason:
                await self._tell_pod(pod, answer)
            else:
                self._untold.forget_pod(pod.uid)
            if self._clock() < self._paused_until:
                return

    async def _find_next(self) -> list[Pod]:
        """In slices, since thousands may wait: calls are answered in between."""
        first: list[Pod] = []
        uids = self._untold.list_uids()
        for start in range(0, len(uids), PODS_PER_SLICE):
            due = chain(first, self._list_due(uids[start : start + PODS_PER_SLICE]))
            first = heapq.nsmallest(PODS_PER_ROUND, due, key=self._rank_pod)
            await asyncio.sleep(0)
        return first

    def _rank_pod(self, pod: Pod) -> tuple[bool, str, str]:
        return bool(pod.told_reason) or pod.uid in self._turns, pod.created_at, pod.uid

    async def _prepare_pod(self, pod: Pod) -> None:
        """In slices, since few kinds of requests are kept: to look at all nodes for another one takes 100 ms of 5,000 nodes."""
        if pod.request is None:
            return
        preparation = self._engine.prepare_request(pod.request, pod.uid)
        self._nominator.note_caller(pod)
        for _ in preparation:
            await asyncio.sleep(0)
            self._nominator.note_caller(pod)

    def _list_due(self, uids: Iterable[str]) -> Iterator[Pod]:
        now = self._clock()
        for uid in uids:
            refusal = self._untold.get_refusal(uid)
            if refusal is None:
                continue
            pod = self._ledger.get_pod(uid)
            if pod is None:
                if now - refusal.refused_since > UNKNOWN_POD_SECONDS:
                    self._untold.forget_pod(uid)
            elif not pod.is_waiting:
                self._untold.forget_pod(uid)
            elif now >= refusal.refused_since + PATIENCE_SECONDS and now >= self._get_next_turn(uid):
                yield pod

    def _get_next_turn(self, uid: str) -> float:
        turn = self._turns.get(uid)
        return 0.0 if turn is None else turn.next_at

    def _find_answer(self, pod: Pod) -> RefusalAnswer | None:
        """As of now; None if a node would take the pod, or took it, or filter let one pass while it was looked at."""
        request = pod.request
        current = self._ledger.get_pod(pod.uid)
        refusal = self._untold.get_refusal(pod.uid)
        if request is None or refusal is None or current is None or not current.is_waiting:
            return None
        self._nominator.note_caller(pod)
        names = self._untold.list_names(refusal)
        nearest = self._engine.find_nearest_node(names, request, pod.uid)
        if nearest is None:
            shortfall = self._group_fit.find_shortfall(pod)
            return None if shortfall is None else RefusalAnswer(UnfitReason.GROUP, str(shortfall))
        if nearest.reason is UnfitReason.NOT_SEEN:
            return None
        if nearest.reason is UnfitReason.NOT_VALID:
            return RefusalAnswer(nearest.reason, request.problem)
        if nearest.reason is UnfitReason.UNPAID and not self._engine.may_fit_when_empty(request):
            return RefusalAnswer(nearest.reason, describe_unpaid(self._engine.count_cards(), request))
        text = describe_refusal(
            request,
            nearest,
            self._ledger.get_node(nearest.name),
            cards=self._engine.count_cards(),
            skipped_nodes=self._count_skipped_nodes(names),
            node_selector=refusal.node_selector,
            unit_mib=self._ledger.unit_mib,
        )
        return RefusalAnswer(nearest.reason, text)

    def _count_skipped_nodes(self, names: frozenset[str]) -> int:
        nodes = [self._ledger.get_node(name) for name in self._ledger.list_node_names() - names]
        return sum(node is not None and bool(node.cards) for node in nodes)

    async def _tell_pod(self, pod: Pod, answer: RefusalAnswer) -> None:
        """A pod whose write failed is tried again at its next turn, and keeps no other pod from being told."""
        try:
            await self._pods.write_answer(
                pod, answer.reason.condition_reason, answer.text, now=self._now(), deadline=self._clock() + CALL_SECONDS
            )
        except (RefusedError, NoAnswerError) as error:
            self._note_failure(pod, error)
            return
        self._note_turn(pod)
        self._untold.forget_pod(pod.uid)
        event = _EVENTS.get(answer.reason, EventReason.NOT_PLACED)
        self._events.record_changing_event(pod, event, answer.text, is_warning=True)
        log.info("refused pod told pod=%s reason=%s", pod, answer.reason.condition_reason)

    def _note_failure(self, pod: Pod, error: RefusedError | NoAnswerError) -> None:
        status = error.status if isinstance(error, RefusedError) else None
        if status in POD_GONE_STATUSES:
            self._untold.forget_pod(pod.uid)
        else:
            log.warning("answer not written pod=%s error=%s", pod, error)
        if status is None or status in PAUSING_STATUSES:
            self._paused_until = self._clock() + extend_pause(PAUSE_SECONDS, error)
        if status not in PAUSING_STATUSES:
            self._note_turn(pod)

    def _note_turn(self, pod: Pod) -> None:
        """Its next turn is later each time, unless it had none for long."""
        last = self._turns.get(pod.uid)
        now = self._clock()
        times = 1 if last is None or now > last.next_at + REPEAT.longest_seconds else last.times + 1
        self._turns[pod.uid] = PodTurn(times, now + REPEAT.compute_seconds(times))
