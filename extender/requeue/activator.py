"""Wakes the pods that were refused and would fit now, where the scheduler has no reason to try them again.

    filter refuses --> waits --room it has not seen, and fits with the others--> kicked --filter passes--> bound
                         ^                                                          |
                         '---- filter refuses again, or not bound within 5 s -------'
                               (the place goes to the next, the pod backs off)

The event that frees room may reach the scheduler before us: it asks, we refuse, and nothing wakes the pod until the
scheduler's flush after five minutes. So does room that no event tells of: a reservation that a failed bind gave
back, a card that healed. A kick is one annotation through the pod's status: the scheduler tries this one pod again.
Whoever passed filter or has not been refused is the scheduler's business.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from extender.metrics import ExtenderMetrics
from extender.requeue.dry_run import DryRun
from extender.requeue.unschedulable_pods import Rejection, UnschedulablePods, is_waiting
from extender.state.ledger import Ledger
from extender.state.nominator import Nominator
from extender.state.sync import ReadinessCheck
from policies.engine.engine import Engine
from policies.trial_placement import Placement
from vrampack.cards import well_known
from vrampack.cards.pod import Pod
from vrampack.cards.request import CardRequest
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError, RefusedError

log = logging.getLogger(__name__)

COALESCE_SECONDS = 0.03
"""Several changes are one round; and where the scheduler heard of the room too, it asks within that time by itself."""
REST_FACTOR = 4
"""A round rests so many times as long as it took: with thousands waiting it costs a fifth of a core, not all."""
ACTIVATION_SECONDS = 5.0
SCHEDULER_SILENT_SECONDS = 300.0
"""An extender that no scheduler called for so long is a standby: its kicks would be another one's business."""
ADOPT_SECONDS = 5.0
"""How long a new process waits for the scheduler to ask about the pods that are there, after the last one it could help."""
MAX_ADOPT_SECONDS = 60.0
"""The same after the first call, however long the scheduler's queue is."""
PATCH_TIMEOUT_SECONDS = 1.0
UNREADY_RETRY_SECONDS = 1.0
PREEMPTION_POLL_SECONDS = 0.5
"""How often to look whether evictions that preempt named are settled: nobody tells."""
MAX_ACTIVATED_PODS = 100
"""Kicks whose pods the scheduler has not asked about yet: it tries one pod at a time anyway."""
PODS_PER_SLICE = 500
"""Pods, before others get their turn: about 3 ms."""
POD_GONE_STATUSES = frozenset({404, 409, 422})
"""No such pod, or another uid under its name."""

Candidate = tuple[tuple[bool, int, bool, str, str], Pod, Rejection]
"""How urgent, most urgent first (no two are equally so: the last is the uid); who; and what is known of it."""


@dataclass(slots=True)
class Activation:
    """A pod that was kicked, and the place that is kept for it meanwhile."""

    pod: Pod
    request: CardRequest
    laid: Placement
    expires_at: float
    has_passed: bool = False


class PodActivator:
    """Hears of refusals and of room, and kicks. A `ledger.Listener`."""

    def __init__(  # noqa: PLR0913 - what a kick touches
        self,
        *,
        ledger: Ledger,
        engine: Engine,
        nominator: Nominator,
        api: Api,
        metrics: ExtenderMetrics,
        readiness: ReadinessCheck,
        clock: Callable[[], float],
        started_ns: int,
    ) -> None:
        self._ledger = ledger
        self._engine = engine
        self._nominator = nominator
        self._api = api
        self._metrics = metrics
        self._readiness = readiness
        self._clock = clock
        self._started_ns = started_ns
        self._unschedulable_pods = UnschedulablePods()
        self._activations: dict[str, Activation] = {}
        self._wake_up = asyncio.Event()
        self._rounds = 0
        self._filter_called_at: float | None = None
        self._adopt_at: float | None = None
        self._adopt_deadline = 0.0
        self._is_adopted = False
        self._has_pending_preemptions = False
        self.next_round_at: float | None = None
        """When there is reason for a round if nothing changes."""

    def on_capacity_gained(self) -> None:
        self._wake_up.set()

    def on_pod_added(self, uid: str) -> None:
        if uid in self._unschedulable_pods:
            self._wake_up.set()

    def on_evictions_expected(self) -> None:
        """Preempt answered: whoever is refused for it meanwhile must be woken when it ends."""
        self._wake_up.set()

    def on_filter_called(self) -> None:
        """A scheduler called filter."""
        now = self._clock()
        if not self._has_active_scheduler(now):
            self._wake_up.set()
        if self._adopt_at is None:
            self._adopt_at = now + ADOPT_SECONDS
            self._adopt_deadline = now + MAX_ADOPT_SECONDS
        self._filter_called_at = now

    def on_filter_answered(self, uid: str, names: Collection[str], *, fits: bool) -> None:
        """Filter answered for this pod: whether any of these nodes can take it."""
        now = self._clock()
        attempt = self._activations.get(uid)
        if fits:
            if self._adopt_at is not None and not self._is_adopted:
                self._adopt_at = min(now + ADOPT_SECONDS, self._adopt_deadline)
            if self._unschedulable_pods.admit_pod(uid, now):
                self._metrics.bound_after_flush.inc()
            if attempt is not None:
                attempt.has_passed = True
                self._wake_up.set()
            return
        self._unschedulable_pods.reject_pod(uid, self._ledger.capacity_generation, now)
        if attempt is not None:
            # A node that the scheduler did not even ask about is closed to the pod for other reasons than ours.
            self._end_activation(uid, "refused", backs_off=attempt.laid.node_name not in names)
            self._wake_up.set()

    async def run(self) -> None:
        """Kick whenever there is reason to, until cancelled."""
        while True:
            await self._wait()
            await asyncio.sleep(COALESCE_SECONDS)
            self._wake_up.clear()
            started = self._clock()
            chosen = await self.choose_activations()
            took = self._clock() - started
            await self.activate_pods(chosen)
            await asyncio.sleep(min(took * REST_FACTOR, UNREADY_RETRY_SECONDS))

    async def choose_activations(self) -> list[Activation]:
        """One round: who is to be woken now. They count as under way from here on."""
        now = self._clock()
        self.next_round_at = None
        if self._readiness.find_unready_reason():
            self.next_round_at = (
                now + UNREADY_RETRY_SECONDS if self._unschedulable_pods or not self._is_adopted else None
            )
            return []
        self._end_finished_activations(now)
        self._has_pending_preemptions = self._nominator.release_ended_preemptions()
        await self._adopt_pods(now)
        chosen = await self._choose_candidates(await self._list_candidates(now), now)
        # Others had their turns meanwhile: whoever passed filter in them needs no kick.
        chosen = [attempt for attempt in chosen if attempt.pod.uid in self._unschedulable_pods]
        for attempt in chosen:
            self._activations[attempt.pod.uid] = attempt
        await asyncio.sleep(0)
        self._set_next_round(now)
        return chosen

    async def activate_pods(self, chosen: Collection[Activation]) -> None:
        """Write one annotation each."""
        if chosen:
            self._rounds += 1
            async with asyncio.TaskGroup() as group:
                for attempt in chosen:
                    group.create_task(self._write_activation(attempt, f"{self._started_ns}-{self._rounds}"))

    async def _wait(self) -> None:
        seconds = None if self.next_round_at is None else max(0.0, self.next_round_at - self._clock())
        try:
            async with asyncio.timeout(seconds):
                await self._wake_up.wait()
        except TimeoutError:
            log.debug("activation round due waiting=%d", len(self._unschedulable_pods))

    def _has_active_scheduler(self, now: float) -> bool:
        return self._filter_called_at is not None and now - self._filter_called_at <= SCHEDULER_SILENT_SECONDS

    def _end_finished_activations(self, now: float) -> None:
        """Ends the attempts that came to something, or to nothing in time."""
        for uid, attempt in list(self._activations.items()):
            pod = self._ledger.get_pod(uid)
            if pod is None or not is_waiting(pod):
                self._end_activation(uid, "bound" if pod is not None and pod.node_name else "gone")
            elif now >= attempt.expires_at:
                self._end_activation(uid, "expired", backs_off=True)

    async def _adopt_pods(self, now: float) -> None:
        """Takes what an earlier process may have refused for refused: it has seen no room of this one."""
        if self._is_adopted or self._adopt_at is None or now < self._adopt_at:
            return
        self._is_adopted = True
        for at, pod in enumerate(list(self._ledger.list_pods()), start=1):
            if is_waiting(pod) and pod.uid not in self._unschedulable_pods and pod.uid not in self._activations:
                self._unschedulable_pods.reject_pod(pod.uid, 0, now)
            if at % PODS_PER_SLICE == 0:
                await asyncio.sleep(0)

    async def _list_candidates(self, now: float) -> list[list[Candidate]]:
        """Those that have not seen all room yet, most urgent first: sorted lists, to be merged."""
        held = {each.pod.uid for each in self._ledger.list_reservations()} | self._activations.keys()
        newest = self._ledger.capacity_generation
        chunks: list[list[Candidate]] = [[]]
        for pod, refusal in self._unschedulable_pods.drop_resolved_pods(self._ledger.get_pod, now):
            if refusal.seen_generation >= newest or pod.uid in held:
                continue
            urgency = (
                now < refusal.backs_off_until,
                -pod.priority,
                not self._nominator.is_nominee(pod),
                pod.created_at,
                pod.uid,
            )
            chunks[-1].append((urgency, pod, refusal))
            if len(chunks[-1]) == PODS_PER_SLICE:
                chunks[-1].sort()
                chunks.append([])
                await asyncio.sleep(0)
        chunks[-1].sort()
        return chunks

    async def _choose_candidates(self, chunks: list[list[Candidate]], now: float) -> list[Activation]:
        generation = self._ledger.capacity_generation
        oldest = min((refusal.seen_generation for chunk in chunks for _, _, refusal in chunk), default=generation)
        plan = DryRun(self._ledger.list_nodes_gained_since(oldest), self._list_uncounted_placements())
        await asyncio.sleep(0)
        room = MAX_ACTIVATED_PODS - sum(not each.has_passed for each in self._activations.values())
        may_kick = self._has_active_scheduler(now)
        chosen: list[Activation] = []
        for at, each in enumerate(heapq.merge(*chunks), start=1):
            if len(chosen) >= room:
                break
            if plan.is_budget_spent:
                self._wake_up.set()
                break
            attempt = await self._place_candidate(plan, each, generation, now)
            if attempt is not None and may_kick:
                chosen.append(attempt)
            if at % PODS_PER_SLICE == 0:
                await asyncio.sleep(0)
        log.debug(
            "activation round planned waiting=%d chosen=%d generation=%d",
            len(self._unschedulable_pods),
            len(chosen),
            generation,
        )
        return chosen

    async def _place_candidate(
        self, dry_run: DryRun, candidate: Candidate, capacity_generation: int, now: float
    ) -> Activation | None:
        _, pod, refusal = candidate
        if pod.request is None:
            return None
        request, policy = pod.request.card_request, self._engine.choose_policy(pod.request)
        vain = refusal.avoided_nodes if now < refusal.backs_off_until else ()
        laid = await dry_run.place_pod(request, policy, since=refusal.seen_generation, excluded_nodes=vain)
        if laid is not None:
            refusal.placeable_since = now if refusal.placeable_since is None else refusal.placeable_since
            return Activation(pod, request, laid, now + ACTIVATION_SECONDS)
        if await dry_run.is_unplaceable(request, policy, since=refusal.seen_generation):
            refusal.seen_generation = max(refusal.seen_generation, capacity_generation)
            refusal.placeable_since = None
        return None

    def _list_uncounted_placements(self) -> list[tuple[Placement, CardRequest]]:
        """Places that the ledger does not count: of those that were kicked, and of nominated pods that do not wait here."""
        reserved = {each.pod.uid for each in self._ledger.list_reservations()}
        kicked = [(each.laid, each.request) for uid, each in self._activations.items() if uid not in reserved]
        kept = [
            (each.placement, each.request)
            for each in self._nominator.list_placements()
            if each.pod.uid not in self._unschedulable_pods and each.pod.uid not in self._activations
        ]
        return kicked + kept

    async def _write_activation(self, attempt: Activation, value: str) -> None:
        pod, node_name = attempt.pod, attempt.laid.node_name
        refusal = self._unschedulable_pods.get_rejection(pod.uid)
        try:
            await self._api.patch_pod_status(
                pod.namespace,
                pod.name,
                pod.uid,
                {well_known.RETRY_ANNOTATION: value},
                timeout_seconds=PATCH_TIMEOUT_SECONDS,
            )
        except (RefusedError, NoAnswerError) as error:
            is_gone = isinstance(error, RefusedError) and error.status in POD_GONE_STATUSES
            log.log(logging.DEBUG if is_gone else logging.WARNING, "activation failed pod=%s error=%s", pod, error)
            self._end_activation(pod.uid, "gone" if is_gone else "failed", backs_off=True)
            self._wake_up.set()
            return
        log.info("activated pod=%s node=%s retry=%s", pod, node_name, value)
        if refusal is not None:
            refusal.is_activated = True

    def _end_activation(self, uid: str, result: str, *, backs_off: bool = False) -> None:
        attempt = self._activations.pop(uid, None)
        if attempt is None:
            return
        self._metrics.activations.labels(result).inc()
        refusal = self._unschedulable_pods.get_rejection(uid)
        if backs_off and refusal is not None:
            refusal.back_off_node(attempt.laid.node_name, self._clock())

    def _set_next_round(self, now: float) -> None:
        """When there is reason for a round if nothing changes: an attempt ends, a back-off ends, pods are adopted."""
        newest = self._ledger.capacity_generation
        times = [attempt.expires_at for attempt in self._activations.values()]
        times += [
            each.backs_off_until
            for each in self._unschedulable_pods.list_rejections()
            if each.backs_off_until > now and each.seen_generation < newest
        ]
        if not self._is_adopted and self._adopt_at is not None:
            times.append(self._adopt_at)
        if self._has_pending_preemptions:
            times.append(now + PREEMPTION_POLL_SECONDS)
        self.next_round_at = min(times, default=None)
