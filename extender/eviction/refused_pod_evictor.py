"""Evicts pods that the agent of their node refuses for longer than a while, so that the replacement finds another place.

Agents may not evict: a token stolen from one would reach every pod of the cluster. So an agent's report has a bounded
effect: only pods that ask for our memory, are bound to that very node and have a controller are evicted, a few a second in
the whole cluster, by uid and through the eviction API, which disruption budgets may stop. A pod that was refused a start and
runs by now stays: an agent may have died before it could say so.

Two extenders may evict the same pod. The uid makes the second eviction harmless; still, an extender that no scheduler
calls leaves the first minute to the other.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from extender.events import EventReason, ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.state.ledger import Ledger
from extender.state.reported_refusals import ReportedRefusal, ReportedRefusals
from extender.state.sync import ReadinessCheck
from vrampack.backoff import Backoff
from vrampack.cards.pod import Pod
from vrampack.cards.refused_pods import REASONS_TO_EVICT_RUNNING
from vrampack.kube.client import Api
from vrampack.kube.decoding import UNDECODABLE
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.objects import LocalPodObject
from vrampack.kube.retry_backoff import extend_pause

log = logging.getLogger(__name__)

CHECK_INTERVAL_SECONDS = 1.0
CALL_SECONDS = 5.0
STANDBY_SECONDS = 60.0
"""How much longer an extender waits that no scheduler calls."""
NODE_INTERVAL_SECONDS = 5.0
"""Between two evictions from one node, so that a node with a lying agent empties slowly, and visibly."""
PODS_PER_ROUND = 5
"""For all nodes together, so that a rollout of agents that refuse everything does not empty a whole cluster at once."""
BACKOFF = Backoff(first_seconds=10.0, longest_seconds=300.0)
"""Before the next try: a disruption budget may not allow it for hours."""
TOO_MANY_REQUESTS = 429
GONE_STATUSES = (404, 409)
"""The pod is gone, or another one has its name. Some conflicts pass, so it is checked once more, late."""
FAILURES_BEFORE_EVENT = 3
"""One or two failures of the API server say nothing about the pod. Repeated ones may: a pod with two budgets, say."""


@dataclass(slots=True)
class _Attempt:
    next_at: float = 0.0
    failures: int = 0
    is_told: bool = False


class RefusedPodEvictor:
    """Looks at what agents report, every second."""

    def __init__(  # noqa: PLR0913 - what it needs, each named
        self,
        refusals: ReportedRefusals,
        ledger: Ledger,
        api: Api,
        events: ExtenderEventRecorder,
        metrics: ExtenderMetrics,
        *,
        readiness: ReadinessCheck,
        is_called: Callable[[], bool],
        clock: Callable[[], float],
        after_seconds: float | None,
    ) -> None:
        """`is_called` says whether a scheduler calls this extender; `after_seconds` None: nothing is evicted."""
        self._refusals = refusals
        self._ledger = ledger
        self._api = api
        self._events = events
        self._metrics = metrics
        self._readiness = readiness
        self._is_called = is_called
        self._clock = clock
        self._after_seconds = after_seconds
        self._attempts: dict[tuple[str, str], _Attempt] = {}
        self._next_of_node: dict[str, float] = {}

    async def run(self) -> None:
        """Evict the pods that are due, once a second, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            await self.evict_due_pods()

    async def evict_due_pods(self) -> None:
        """One round."""
        refusals = self._refusals.list_refusals()
        reported = {(each.node_name, each.uid) for each in refusals}
        self._attempts = {key: attempt for key, attempt in self._attempts.items() if key in reported}
        if self._after_seconds is None or not refusals or self._readiness.find_unready_reason():
            return
        after_seconds = self._after_seconds + (0.0 if self._is_called() else STANDBY_SECONDS)
        now = self._clock()
        self._next_of_node = {name: at for name, at in self._next_of_node.items() if at > now}
        left = PODS_PER_ROUND
        for refusal in refusals:
            attempt = self._attempts.setdefault((refusal.node_name, refusal.uid), _Attempt())
            due_at = max(refusal.seen_at + after_seconds, attempt.next_at)
            pod = self._find_pod(refusal)
            if left and pod is not None and now >= due_at and refusal.node_name not in self._next_of_node:
                left -= 1
                await self._consider_eviction(refusal, pod, attempt)

    def _find_pod(self, refusal: ReportedRefusal) -> Pod | None:
        """The pod, if it asks for our memory and is on that node: the node has no say about other pods."""
        pod = self._ledger.get_pod(refusal.uid)
        if pod is None or pod.node_name != refusal.node_name or not pod.can_hold_memory:
            return None
        return None if pod.is_terminating or pod.is_finished else pod

    async def _consider_eviction(self, refusal: ReportedRefusal, pod: Pod, attempt: _Attempt) -> None:
        attempt.next_at = self._clock() + BACKOFF.first_seconds
        try:
            seen = await self._fetch_pod(pod)
            if seen is None or seen.metadata.uid != pod.uid or seen.spec.node_name != refusal.node_name:
                return
            if seen.is_running and refusal.reason not in REASONS_TO_EVICT_RUNNING:
                return  # it started after all: the agent's word is late, or the agent is gone
            if not seen.is_controlled or seen.is_static:
                self._keep(refusal, pod, attempt)
                return
            self._next_of_node[refusal.node_name] = self._clock() + NODE_INTERVAL_SECONDS
            await self._api.evict(pod.namespace, pod.name, pod.uid, timeout_seconds=CALL_SECONDS)
        except (RefusedError, NoAnswerError) as error:
            self._note_failure(refusal, pod, attempt, error)
            return
        attempt.next_at = math.inf  # the pod may take a while to end
        self._metrics.evictions.labels("evicted").inc()
        log.warning("pod evicted cause=%s pod=%s uid=%s node=%s", refusal.reason, pod, pod.uid, refusal.node_name)
        self._events.record_pod_event(
            pod,
            EventReason.EVICTED,
            f"refused on node {refusal.node_name} ({refusal.reason}): evicted, so that its replacement is placed again",
        )

    async def _fetch_pod(self, pod: Pod) -> LocalPodObject | None:
        """The pod as the API server has it now, with its owners and containers, which the ledger does not store."""
        body = await self._api.get_pod_bytes(pod.namespace, pod.name, timeout_seconds=CALL_SECONDS)
        try:
            return None if body is None else msgspec.json.decode(body, type=LocalPodObject)
        except UNDECODABLE as error:
            raise NoAnswerError(f"get pod {pod}: {error}") from error

    def _keep(self, refusal: ReportedRefusal, pod: Pod, attempt: _Attempt) -> None:
        attempt.next_at = math.inf
        self._metrics.evictions.labels("kept").inc()
        log.warning("refused pod kept cause=%s pod=%s uid=%s node=%s", refusal.reason, pod, pod.uid, refusal.node_name)
        text = "it has no controller that would recreate it; delete it yourself"
        self._record_not_evicted(refusal, pod, text)

    def _note_failure(
        self, refusal: ReportedRefusal, pod: Pod, attempt: _Attempt, error: RefusedError | NoAnswerError
    ) -> None:
        status = error.status if isinstance(error, RefusedError) else 0
        result = "gone" if status in GONE_STATUSES else "budget" if status == TOO_MANY_REQUESTS else "failed"
        self._metrics.evictions.labels(result).inc()
        if result == "gone":
            attempt.next_at = self._clock() + BACKOFF.longest_seconds
            return
        attempt.failures += 1
        attempt.next_at = self._clock() + extend_pause(BACKOFF.compute_seconds(attempt.failures), error)
        if attempt.failures == 1:
            log.warning("pod not evicted cause=%s pod=%s uid=%s error=%s", refusal.reason, pod, pod.uid, error)
        if attempt.is_told or (result == "failed" and attempt.failures < FAILURES_BEFORE_EVENT):
            return
        attempt.is_told = True
        why = (
            "a PodDisruptionBudget does not allow its eviction"
            if result == "budget"
            else "the API server fails to evict it"
        )
        self._record_not_evicted(refusal, pod, f"{why}; the extender tries again: {error}")

    def _record_not_evicted(self, refusal: ReportedRefusal, pod: Pod, text: str) -> None:
        self._events.record_pod_event(
            pod, EventReason.NOT_EVICTED, f"refused on node {refusal.node_name} ({refusal.reason}), not evicted: {text}"
        )
