"""Asks a second policy about the decisions of the one in force, to count how often it would choose another node. It never acts.

    reply --> queue --> the ledger is unchanged since the decision: judged, same or other
                  |     it has changed: stale
                  '--> resting, full, or a pod from which cards are kept: skipped

After each judgement it rests nine times as long as that took, so it uses at most a tenth of the loop's time. It has its own
verdict tables, so the cache of the policy in force is not affected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from extender.metrics import ExtenderMetrics
from extender.policy_settings import PolicyTuning, ShadowPolicy
from extender.state.nominator import Nominator
from policies.engine.engine import Engine
from vrampack.cards.pod import Pod
from vrampack.cards.request import PodRequest

REST_FACTOR = 9.0
"""Seconds of rest for each second of work: a tenth of the time is work."""
QUEUE_LENGTH = 8
"""The most decisions that wait: the ledger would change before any more of them had their turn."""


@dataclass(frozen=True, slots=True)
class RankedPod:
    """A decision that was answered."""

    pod: Pod
    pod_request: PodRequest
    names: Sequence[str]
    best: str
    ledger_generation: int
    avoided: frozenset[str] = frozenset()


class ShadowJudge:
    """Judges decisions in `run`, until cancelled; without a shadow policy it stays idle."""

    def __init__(
        self,
        nominator: Nominator,
        engine: Engine,
        metrics: ExtenderMetrics,
        tuning: PolicyTuning,
        *,
        cpu_clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._nominator = nominator
        self._live_engine = engine
        self._cpu_clock = cpu_clock
        self._sleep = sleep
        self._decisions = metrics.shadow_decisions
        self._queue: asyncio.Queue[RankedPod] = asyncio.Queue(QUEUE_LENGTH)
        self._is_resting = False
        self._policy: ShadowPolicy | None = None
        self._engine = engine
        self.set_tuning(tuning)

    def set_tuning(self, tuning: PolicyTuning) -> None:
        """Another configuration is in force."""
        if tuning.shadow != self._policy:
            self._policy = tuning.shadow
            self.forget_all()

    def forget_all(self) -> None:
        """Use another engine: the present one has caches of its own, over views that were emptied."""
        if self._policy is not None:
            self._engine = self._live_engine.build_shadow(self._policy.build_tuning())

    def note_decision(
        self, pod: Pod, pod_request: PodRequest, names: Sequence[str], best: str, avoided: frozenset[str]
    ) -> None:
        """`best` was ranked first among these nodes. The reply is written before anything is judged."""
        if self._policy is None:
            return
        if self._nominator.get_priority_floor(pod.uid) is not None or self._is_resting or self._queue.full():
            self._decisions.labels("skipped").inc()
            return
        self._queue.put_nowait(RankedPod(pod, pod_request, names, best, self._nominator.generation, avoided))

    async def run(self) -> None:
        while True:
            decision = await self._queue.get()
            await self._judge_decision(decision)

    async def _judge_decision(self, decision: RankedPod) -> None:
        if self._policy is None:
            return
        request = replace(decision.pod_request, policy=None, profile=None)
        preparation = self._engine.prepare_request(request, decision.pod.uid)
        is_prepared = False
        while not is_prepared:
            began = self._cpu_clock()
            self._nominator.note_caller(decision.pod)
            is_prepared = next(preparation, self) is self
            if is_prepared:
                self._decisions.labels(self._compare_best(decision, request)).inc()
            await self._rest(self._cpu_clock() - began)

    def _compare_best(self, decision: RankedPod, request: PodRequest) -> str:
        if self._nominator.generation != decision.ledger_generation:
            return "stale"
        best = self._engine.rank_nodes(set(decision.names), request, decision.pod.uid, 1, decision.avoided)
        return "same" if best == [decision.best] else "other"

    async def _rest(self, spent_seconds: float) -> None:
        self._is_resting = True
        await self._sleep(REST_FACTOR * spent_seconds)
        self._is_resting = False
