"""Activates pods that filter rejected and that fit now, when the scheduler has no reason to try them again.

    filter rejects --> waits --capacity it has not seen, and fits with the others--> activated --filter passes--> bound
                         ^                                                              |
                         '------- filter rejects again, or not bound within 5 s --------'
                                  (the place goes to the next pod, this one backs off)

The event that frees capacity may reach the scheduler before us: it asks, we reject the pod, and nothing wakes it until the
scheduler's flush after five minutes. The same goes for capacity that no event announces: a reservation that a failed bind
gave back, a card that recovered. An activation writes one annotation through the pod's status, which makes the scheduler try
the pod again. Pods that passed filter, or were never rejected, are left to the scheduler.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from extender.metrics import ExtenderMetrics
from extender.requeue.dry_run import DryRun
from extender.requeue.group_waits import GroupWaits
from extender.requeue.unschedulable_pods import Rejection, UnschedulablePods
from extender.state.group_fit import GroupFit
from extender.state.ledger import Ledger
from extender.state.nominator import Nominator
from extender.state.pod_client import PodClient
from extender.state.sync import ReadinessCheck
from policies.engine.engine import Engine
from policies.trial_placement import Placement
from vrampack.cards.pod import Pod
from vrampack.cards.pod_group import GroupKey
from vrampack.cards.request import CardRequest, PodRequest
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.retry_backoff import extend_pause

log = logging.getLogger(__name__)

COALESCE_SECONDS = 0.03
"""Changes within this time share a round. If the scheduler saw the change too, it calls filter within it by itself."""
REST_FACTOR = 4
"""The pause after a round, as a multiple of its length: with thousands of pods waiting, rounds take a fifth of a core."""
ACTIVATION_SECONDS = 5.0
SCHEDULER_SILENT_SECONDS = 300.0
"""An extender that no scheduler called for this long is a standby: it leaves activations to the one that is called."""
ADOPT_SECONDS = 5.0
"""How long a new process waits, after the last pod that passed filter, for the scheduler to ask about the other pods."""
MAX_ADOPT_SECONDS = 60.0
"""The longest wait after the first call, even if the scheduler's queue is longer."""
MAX_SCHEDULERS = 1024
"""How many scheduler names are remembered."""
API_PAUSE_SECONDS = 1.0
"""The pause after the API server failed to take an activation."""
API_RETRY_SECONDS = 2.0
"""How long the pod of such an activation lets others go first. The failure does not count against its node."""
PATCH_TIMEOUT_SECONDS = 1.0
UNREADY_RETRY_SECONDS = 1.0
PREEMPTION_POLL_SECONDS = 0.5
"""How often to check whether pending preemptions have ended, which no event announces."""
MAX_ACTIVATED_PODS = 100
"""The most activated pods that the scheduler has not asked about yet: it tries one pod at a time anyway."""
PODS_PER_SLICE = 200
"""Pods between two yields to the event loop: about 2 ms."""
API_FAILURE_STATUSES = frozenset({401, 403, 429})
"""Refusals that say nothing about the pod or its place."""
POD_GONE_STATUSES = frozenset({404, 409, 422})
"""The pod is gone, or another pod has its name."""

Candidate = tuple[tuple[bool, int, bool, str, str], Pod, Rejection]
"""A sort key, most urgent first (no two are equal: the last field is the uid); the pod; its rejection."""


@dataclass(slots=True)
class Activation:
    """A pod that was activated, and the place that is kept for it meanwhile."""

    pod: Pod
    request: PodRequest
    placement: Placement
    expires_at: float
    has_passed: bool = False


class PodActivator:
    """Activates rejected pods when nodes gain capacity."""

    def __init__(  # noqa: PLR0913 - what an activation needs
        self,
        *,
        ledger: Ledger,
        engine: Engine,
        nominator: Nominator,
        pods: PodClient,
        group_fit: GroupFit,
        metrics: ExtenderMetrics,
        readiness: ReadinessCheck,
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._engine = engine
        self._nominator = nominator
        self._pods = pods
        self._metrics = metrics
        self._readiness = readiness
        self._clock = clock
        self._unschedulable_pods = UnschedulablePods()
        self._group_waits = GroupWaits(ledger, group_fit, self._unschedulable_pods)
        self._activations: dict[str, Activation] = {}
        self._wake_up = asyncio.Event()
        self._api_paused_until = 0.0
        self._schedulers: set[str] = set()
        """Names of the schedulers that have called filter: only these can be made to try a pod."""
        self._filter_called_at: float | None = None
        self._adopt_at: float | None = None
        self._adopt_deadline = 0.0
        self._is_adopted = False
        self._has_pending_preemptions = False
        self.next_round_at: float | None = None
        """When the next round is due if nothing changes; None: no round until something changes."""

    def on_capacity_gained(self) -> None:
        self._wake_up.set()

    def on_pod_added(self, uid: str) -> None:
        if uid in self._unschedulable_pods:
            self._wake_up.set()

    def on_group_changed(self, group: GroupKey) -> None:
        """It has other pods, or more or fewer of them must start together."""
        if self._group_waits.reconsider_group(group):
            self._wake_up.set()

    def on_evictions_expected(self) -> None:
        """Preempt was answered: pods that are rejected because of it must be activated when it ends."""
        self._wake_up.set()

    def on_filter_called(self, scheduler_name: str) -> None:
        """A scheduler of this name called filter, for any pod."""
        now = self._clock()
        if scheduler_name not in self._schedulers and len(self._schedulers) < MAX_SCHEDULERS:
            self._schedulers.add(scheduler_name)
            self._wake_up.set()
        if not self.is_called():
            self._wake_up.set()
        if self._adopt_at is None:
            self._adopt_at = now + ADOPT_SECONDS
            self._adopt_deadline = now + MAX_ADOPT_SECONDS
        self._filter_called_at = now

    def on_filter_answered(self, uid: str, names: Collection[str], *, fits: bool, for_group: bool = False) -> None:
        """Filter answered for this pod: whether it fits any of these nodes, and if not, whether that is `for_group`."""
        now = self._clock()
        activation = self._activations.get(uid)
        if fits:
            if self._adopt_at is not None and not self._is_adopted:
                self._adopt_at = min(now + ADOPT_SECONDS, self._adopt_deadline)
            if self._unschedulable_pods.admit_pod(uid, now):
                self._metrics.bound_after_flush.inc()
            if activation is not None:
                activation.has_passed = True
                self._wake_up.set()
            return
        rejection = self._unschedulable_pods.reject_pod(uid, self._ledger.capacity_generation, now)
        rejection.waits_for_group = for_group
        if activation is not None:
            # The scheduler leaves a node out of its call for reasons of its own.
            self._end_activation(uid, "refused", backs_off=activation.placement.node_name not in names)
            self._wake_up.set()

    def is_called(self, within_seconds: float = SCHEDULER_SILENT_SECONDS) -> bool:
        """Whether a scheduler called filter in the last five minutes; if not, this extender is a standby."""
        called_at = self._filter_called_at
        return called_at is not None and self._clock() - called_at <= within_seconds

    def is_activated(self, uid: str) -> bool:
        """Whether a place is kept for this pod until the scheduler tries it again."""
        return uid in self._activations

    def measure_overdue_seconds(self) -> float:
        """The longest time that a rejected pod has had a place without being activated; 0 when no scheduler calls us."""
        now = self._clock()
        since = self._unschedulable_pods.find_overdue_since(self._ledger.get_pod)
        return now - since if since is not None and self.is_called() else 0.0

    async def run(self) -> None:
        """Do a round whenever one is due, until cancelled."""
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
        """One round: the pods to activate now. Their places are kept for them from here on."""
        now = self._clock()
        self.next_round_at = None
        if self._readiness.find_unready_reason():
            self.next_round_at = (
                now + UNREADY_RETRY_SECONDS if self._unschedulable_pods or not self._is_adopted else None
            )
            return []
        self._end_finished_activations(now)
        self._has_pending_preemptions = self._nominator.release_ended_preemptions()
        await self._nominator.catch_up()
        await self._adopt_pods(now)
        chosen: list[Activation] = []
        if now >= self._api_paused_until:
            chosen = await self._choose_candidates(await self._list_candidates(now), now)
        # Verbs ran meanwhile: a pod that passed filter needs no activation.
        chosen = [activation for activation in chosen if activation.pod.uid in self._unschedulable_pods]
        for activation in chosen:
            self._activations[activation.pod.uid] = activation
        await asyncio.sleep(0)
        self._set_next_round(now)
        return chosen

    async def activate_pods(self, chosen: Collection[Activation]) -> None:
        """Write one annotation to each pod."""
        async with asyncio.TaskGroup() as group:
            for activation in chosen:
                group.create_task(self._write_activation(activation))

    async def _wait(self) -> None:
        seconds = None if self.next_round_at is None else max(0.0, self.next_round_at - self._clock())
        try:
            async with asyncio.timeout(seconds):
                await self._wake_up.wait()
        except TimeoutError:
            log.debug("activation round due waiting=%d", len(self._unschedulable_pods))

    def _end_finished_activations(self, now: float) -> None:
        """End the activations whose pods are bound or gone, and those whose time is up."""
        for uid, activation in list(self._activations.items()):
            pod = self._ledger.get_pod(uid)
            if pod is None or not pod.is_waiting:
                self._end_activation(uid, "bound" if pod is not None and pod.node_name else "gone")
            elif now >= activation.expires_at:
                self._end_activation(uid, "expired", backs_off=True)

    async def _adopt_pods(self, now: float) -> None:
        """Count pods that an earlier process may have rejected as rejected before this one saw any capacity."""
        if self._is_adopted or self._adopt_at is None or now < self._adopt_at:
            return
        self._is_adopted = True
        for count, pod in enumerate(list(self._ledger.list_pods()), start=1):
            if pod.is_waiting and pod.uid not in self._unschedulable_pods and pod.uid not in self._activations:
                self._unschedulable_pods.reject_pod(pod.uid, 0, now)
            if count % PODS_PER_SLICE == 0:
                await asyncio.sleep(0)

    async def _list_candidates(self, now: float) -> list[list[Candidate]]:
        """Rejected pods that have not seen all capacity yet: lists sorted by urgency, for the caller to merge."""
        binding = {each.pod.uid for each in self._ledger.places.list_reservations() if not each.is_unconfirmed}
        placed_uids = (
            binding | {each.pod.uid for each in self._ledger.places.list_held_places()} | self._activations.keys()
        )
        newest = self._ledger.capacity_generation
        chunks: list[list[Candidate]] = [[]]
        for pod, rejection in self._unschedulable_pods.drop_resolved_pods(self._ledger.get_pod, now):
            if rejection.seen_generation >= newest or pod.uid in placed_uids:
                continue
            if pod.scheduler_name not in self._schedulers or now < rejection.retry_at:
                continue
            if await self._group_waits.must_wait(pod, rejection, newest):
                continue
            urgency = (
                now < rejection.backs_off_until,
                -pod.priority,
                not self._nominator.is_nominee(pod),
                pod.created_at,
                pod.uid,
            )
            chunks[-1].append((urgency, pod, rejection))
            if len(chunks[-1]) == PODS_PER_SLICE:
                chunks[-1].sort()
                chunks.append([])
                await asyncio.sleep(0)
        chunks[-1].sort()
        return chunks

    async def _choose_candidates(self, chunks: list[list[Candidate]], now: float) -> list[Activation]:
        generation = self._ledger.capacity_generation
        oldest = min((rejection.seen_generation for chunk in chunks for _, _, rejection in chunk), default=generation)
        nodes_gained = self._ledger.nodes.list_nodes_gained_since(oldest)
        unasked_units = {
            node.name: units
            for _, node in nodes_gained
            if (units := self._ledger.nodes.get_unasked_units(node.name)) is not None
        }
        dry_run = DryRun(nodes_gained, self._list_uncounted_placements(), self._engine, unasked_units)
        await asyncio.sleep(0)
        max_chosen = MAX_ACTIVATED_PODS - sum(not each.has_passed for each in self._activations.values())
        may_activate = self.is_called()
        chosen: list[Activation] = []
        for count, candidate in enumerate(heapq.merge(*chunks), start=1):
            if len(chosen) >= max_chosen:
                break
            if dry_run.is_budget_spent:
                self._wake_up.set()
                break
            activation = await self._place_candidate(dry_run, candidate, generation, now)
            if activation is not None and may_activate:
                chosen.append(activation)
            if count % PODS_PER_SLICE == 0:
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
        _, pod, rejection = candidate
        if pod.request is None:
            return None
        policy = self._engine.choose_policy(pod.request)
        avoided_nodes = rejection.avoided_nodes if now < rejection.backs_off_until else ()
        placement = await dry_run.place_pod(
            pod.request, policy, since=rejection.seen_generation, excluded_nodes=avoided_nodes
        )
        if placement is not None:
            rejection.placeable_since = now if rejection.placeable_since is None else rejection.placeable_since
            return Activation(pod, pod.request, placement, now + ACTIVATION_SECONDS)
        if await dry_run.is_unplaceable(pod.request, policy, since=rejection.seen_generation):
            rejection.seen_generation = max(rejection.seen_generation, capacity_generation)
            rejection.placeable_since = None
        return None

    def _list_uncounted_placements(self) -> list[tuple[Placement, CardRequest, int]]:
        """Places that the ledger does not count: those of activated pods, and of nominated pods that were not rejected.

        With each come the units that the scheduler counts for it: none for a nominated pod, which it counts only against
        pods of no higher priority.
        """
        activated = [
            (each.placement, each.request.card_request, each.request.asked_units)
            for uid, each in self._activations.items()
            if not self._ledger.places.is_on_node(uid, each.placement.node_name)
        ]
        nominated = [
            (each.placement, each.request, 0)
            for each in self._nominator.list_placements()
            if each.pod.uid not in self._unschedulable_pods and each.pod.uid not in self._activations
        ]
        return activated + nominated

    async def _write_activation(self, activation: Activation) -> None:
        pod, node_name = activation.pod, activation.placement.node_name
        rejection = self._unschedulable_pods.get_rejection(pod.uid)
        try:
            await self._pods.request_retry(pod, self._clock() + PATCH_TIMEOUT_SECONDS)
        except (RefusedError, NoAnswerError) as error:
            is_gone = isinstance(error, RefusedError) and error.status in POD_GONE_STATUSES
            is_refused = isinstance(error, RefusedError) and error.status not in API_FAILURE_STATUSES
            log.log(logging.DEBUG if is_gone else logging.WARNING, "activation failed pod=%s error=%s", pod, error)
            self._end_activation(pod.uid, "gone" if is_gone else "failed", backs_off=is_refused)
            if not is_refused:
                self._api_paused_until = self._clock() + extend_pause(API_PAUSE_SECONDS, error)
                if rejection is not None:
                    rejection.retry_at = self._clock() + extend_pause(API_RETRY_SECONDS, error)
            self._wake_up.set()
            return
        log.info("activated pod=%s node=%s", pod, node_name)
        if rejection is not None:
            rejection.is_activated = True

    def _end_activation(self, uid: str, result: str, *, backs_off: bool = False) -> None:
        activation = self._activations.pop(uid, None)
        if activation is None:
            return
        self._metrics.activations.labels(result).inc()
        rejection = self._unschedulable_pods.get_rejection(uid)
        if backs_off and rejection is not None:
            rejection.back_off_node(activation.placement.node_name, self._clock())

    def _set_next_round(self, now: float) -> None:
        """Even if nothing changes, a round is due when an activation or a backoff ends, and when pods are adopted."""
        newest = self._ledger.capacity_generation
        times = [activation.expires_at for activation in self._activations.values()]
        times += [
            each.backs_off_until if each.backs_off_until > now else each.retry_at
            for each in self._unschedulable_pods.list_rejections()
            if max(each.backs_off_until, each.retry_at) > now and each.seen_generation < newest
        ]
        if not self._is_adopted and self._adopt_at is not None:
            times.append(self._adopt_at)
        if now < self._api_paused_until:
            times.append(self._api_paused_until)
        if self._has_pending_preemptions:
            times.append(now + PREEMPTION_POLL_SECONDS)
        self.next_round_at = min(times, default=None)
