"""Preemption by card: evicts pods for a pod of a higher priority that the scheduler cannot help, because the node's totals fit.

    refused for 2 s --plan--> told (plan)
                         '--> its cards are kept, it is nominated, the victims are evicted (act) --> bound, gone, or in vain

The cards are kept as after an answer of the verb preempt, and the nomination is written before the first eviction: so the cards
stay kept, and a process that begins in the middle finds where they are. While a pod is served here, the scheduler is given no
victims for it. One extender acts at a time, the one whose scheduler calls it. Everything else follows from the ledger.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from extender.card_preemption.attempts import PlanAttempt, Service
from extender.card_preemption.card_planner import CALL_SECONDS, CardPlan, CardPlanner, NoPlan
from extender.card_preemption.eviction_budget import EvictionBudget
from extender.card_preemption.refused_calls import RefusedCall, RefusedCalls
from extender.events import EventReason, ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.requeue.activator import SCHEDULER_SILENT_SECONDS, PodActivator
from extender.settings import PreemptionSettings
from extender.state.ledger import Ledger
from extender.state.nominator import Nominator
from extender.state.pod_client import PodClient
from extender.state.sync import ReadinessCheck
from vrampack.backoff import Backoff
from vrampack.cards.pod import Pod
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.leader_lease import LeaderLease

log = logging.getLogger(__name__)

LEASE_NAME = "vrampack-preemption"
INTERVAL_SECONDS = 1.0
RECENT_CALL_SECONDS = 30.0
"""A scheduler that calls another extender now, after its leader changed, may have its pod's place there."""
REST_FACTOR = 4
"""The pause after a round, as a multiple of its length: planning takes a fifth of a core at most."""
PATIENCE_SECONDS = 2.0
"""After filter refuses a pod, the scheduler itself may preempt for it: that takes it less."""
ENDING_SECONDS = 120.0
"""How long a pod waits for pods that are ending before others are evicted elsewhere."""
ADOPTED_GRACE_SECONDS = 3600.0
"""How long the victims of an earlier leader may take to end: their own grace period is not known."""
AVOID_SECONDS = 600.0
READ_AGAIN_SECONDS = 60.0
"""After a node turned out not to do: so that the next plan reads others."""
REPEAT_SECONDS = 300.0
IN_VAIN_PAUSE_SECONDS = 3600.0
"""No pods are evicted again soon for a pod that others were evicted for in vain: something keeps it that we do not see."""
BACKOFF = Backoff(first_seconds=5.0, longest_seconds=300.0)
"""Between two plans for a pod: so long that lesser pods have their turn, one a second."""
MAX_WITHDRAWALS = 3
"""Nodes in a row to try at once for a pod when its victims may not be evicted."""
MAX_SERVED = 16
ABLER_SECONDS = 3600.0
MAX_ABLER_SCHEDULERS = 64
GONE_STATUSES = (404, 409)
TOO_MANY_REQUESTS = 429


class CardPreemptor:
    """Looks at the pods that filter refused, every second."""

    def __init__(  # noqa: PLR0913 - what it needs, each named
        self,
        *,
        ledger: Ledger,
        nominator: Nominator,
        activator: PodActivator,
        calls: RefusedCalls,
        api: Api,
        pods: PodClient,
        lease: LeaderLease,
        events: ExtenderEventRecorder,
        metrics: ExtenderMetrics,
        readiness: ReadinessCheck,
        settings: PreemptionSettings,
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._nominator = nominator
        self._activator = activator
        self._calls = calls
        self._api = api
        self._pods = pods
        self._lease = lease
        self._events = events
        self._metrics = metrics
        self._readiness = readiness
        self._mode = settings.by_card
        self._clock = clock
        self._planner = CardPlanner(ledger, nominator, api)
        self._budget = EvictionBudget(settings, clock=clock)
        self._attempts: dict[str, PlanAttempt] = {}
        self._services: dict[str, Service] = {}
        self._abler_schedulers: dict[str, float] = {}
        """Schedulers that ask about nodes without victims, too, and when they did last: the verb preempt serves their pods."""

    async def run(self) -> None:
        """Do a round every second until cancelled."""
        while True:
            started = self._clock()
            await self.do_round()
            await asyncio.sleep(max(INTERVAL_SECONDS, (self._clock() - started) * REST_FACTOR))

    async def do_round(self) -> None:
        """Carry on what was begun, and plan for one more pod."""
        is_able = self._activator.is_called() and not self._readiness.find_unready_reason()
        self._metrics.card_preemption_leader.set(is_able and self._lease.is_held)
        if not is_able:
            return
        if self._mode == "act" and not self._lease.is_held:
            self._services.clear()  # another extender goes on, from the nominations
            return
        for service in list(self._services.values()):
            await self._continue_service(service)
        waiting = list(self._calls.list_waiting())
        self._forget_resolved_pods()
        kept = {each.pod.uid: each.placement.node_name for each in self._nominator.list_placements()}
        if self._mode == "act":
            self._adopt_services(kept)
        for pod, call in waiting if self._activator.is_called(RECENT_CALL_SECONDS) else ():
            if pod.uid not in kept and self._is_due(pod, call) and len(self._services) < MAX_SERVED:
                await self._plan_pod(pod, call)
                break

    def needs_lease(self) -> bool:
        """Whether a scheduler calls this extender, or what was begun here is not ended."""
        return self._activator.is_called(RECENT_CALL_SECONDS if not self._services else SCHEDULER_SILENT_SECONDS)

    def is_served(self, uid: str) -> bool:
        """Whether pods are evicted for this pod here."""
        return uid in self._services

    def note_proposal(self, scheduler_name: str, *, has_empty: bool) -> None:
        """A scheduler called preempt; `has_empty`: about a node without victims, as versions do that need no help."""
        if not has_empty:
            return
        if not self._is_abler(scheduler_name):
            log.info("scheduler preempts by itself where totals fit scheduler=%s", scheduler_name)
        self._abler_schedulers.pop(scheduler_name, None)
        self._abler_schedulers[scheduler_name] = self._clock()
        if len(self._abler_schedulers) > MAX_ABLER_SCHEDULERS:
            del self._abler_schedulers[next(iter(self._abler_schedulers))]

    def _is_abler(self, scheduler_name: str) -> bool:
        """Until an hour after its last such call: it may be an older version by then."""
        called_at = self._abler_schedulers.get(scheduler_name)
        return called_at is not None and self._clock() - called_at <= ABLER_SECONDS

    def _forget_resolved_pods(self) -> None:
        """Not those that pass filter once: they may come back, and a pause after a plan in vain has to last."""
        self._attempts = {uid: attempt for uid, attempt in self._attempts.items() if self._is_waiting(uid)}

    def _is_waiting(self, uid: str) -> bool:
        pod = self._ledger.get_pod(uid)
        return pod is not None and pod.is_waiting

    def _needs_cards(self, uid: str) -> bool:
        """Whether it waits, and no place was found for it since filter refused it."""
        has_place = bool(self._ledger.places.list_places_of(uid)) or self._activator.is_activated(uid)
        return self._is_waiting(uid) and uid in self._calls and not has_place

    def _may_evict(self, service: Service) -> bool:
        """Whether victims are still needed, by all that is known now. Ask again after each wait."""
        plan = service.plan
        pod = self._ledger.get_pod(plan.pod.uid)
        if pod is None or not self._needs_cards(pod.uid):
            return False
        if service.is_nominated and self._is_placed(pod, plan):
            return False
        if not service.is_begun and self._planner.is_outdated(plan):
            return False
        evicted = {victim.uid for victim in plan.victims if victim not in service.left}
        return self._planner.needs_victims(pod, plan.node_name, leaving_uids=evicted)

    def _is_due(self, pod: Pod, call: RefusedCall) -> bool:
        attempt = self._attempts.setdefault(pod.uid, PlanAttempt())
        return (
            self._clock() >= max(call.waits_since + PATIENCE_SECONDS, attempt.next_at)
            and not self.is_served(pod.uid)
            and not self._is_abler(pod.scheduler_name)
            and self._needs_cards(pod.uid)
        )

    async def _plan_pod(self, pod: Pod, call: RefusedCall) -> None:
        attempt, now = self._attempts[pod.uid], self._clock()
        attempt.avoided_until = {name: until for name, until in attempt.avoided_until.items() if now < until}
        try:
            plan = await self._planner.find_plan(pod, call.names, frozenset(attempt.avoided_until))
        except (RefusedError, NoAnswerError) as error:
            log.warning("no plan to preempt pod=%s error=%s", pod, error)
            plan = NoPlan()
        if isinstance(plan, NoPlan) or plan.victims or plan.node_name != attempt.awaited_node:
            attempt.awaited_node = ""
        if isinstance(plan, NoPlan):
            attempt.avoided_until |= dict.fromkeys(plan.failed_names, self._clock() + READ_AGAIN_SECONDS)
            self._put_off(pod, plan.reason)
            if plan.is_lasting:
                self._calls.leave_out(pod)
        elif not self._needs_cards(pod.uid) or (plan.victims and self._planner.is_outdated(plan)):
            attempt.next_at = self._clock() + PATIENCE_SECONDS  # it has a place now, or there is room for it
        elif not plan.victims:
            self._await_end(attempt, plan.node_name)
        elif not self._budget.has_room(plan.victims):
            self._metrics.card_preemptions.labels("budget").inc()
            self._put_off(pod, "so many pods were evicted for others in the last hour as the settings allow")
        elif self._mode == "plan":
            attempt.next_at = self._clock() + REPEAT_SECONDS
            self._metrics.card_preemptions.labels("planned").inc()
            self._tell_plan(plan, "would be evicted; preemption.by_card is plan, so none is")
        else:
            await self._begin_service(plan)

    def _put_off(self, pod: Pod, reason: str) -> None:
        attempt = self._attempts.setdefault(pod.uid, PlanAttempt())
        attempt.failures += 1
        attempt.next_at = self._clock() + BACKOFF.compute_seconds(attempt.failures)
        if reason:
            self._events.record_pod_event(pod, EventReason.NOT_PREEMPTING, f"no pod is evicted for it: {reason}")

    def _await_end(self, attempt: PlanAttempt, node_name: str) -> None:
        """Pods are ending there that make room, evicted perhaps by an extender before this one."""
        now = self._clock()
        attempt.next_at = now + PATIENCE_SECONDS
        if not attempt.awaited_node:
            attempt.awaited_node, attempt.awaited_since = node_name, now
        if now - attempt.awaited_since >= ENDING_SECONDS:
            attempt.awaited_node = ""
            attempt.avoided_until[node_name] = now + AVOID_SECONDS

    def _tell_plan(self, plan: CardPlan, what: str) -> None:
        victims = ", ".join(str(victim) for victim in plan.victims)
        self._events.record_pod_event(
            plan.pod, EventReason.PREEMPTION_PLANNED, f"node {plan.node_name} has no free card: {victims} {what}"
        )
        log.info("preemption planned pod=%s node=%s victims=%s", plan.pod, plan.node_name, victims)

    async def _begin_service(self, plan: CardPlan) -> None:
        """Nothing was awaited since the plan was made: the victims are right."""
        service = Service(plan, self._clock(), list(plan.victims))
        self._services[plan.pod.uid] = service
        self._keep_cards(service)
        try:
            for victim in plan.victims:
                await self._api.evict(
                    victim.namespace, victim.name, victim.uid, timeout_seconds=CALL_SECONDS, is_dry_run=True
                )
            if not self._may_evict(service):
                await self._give_up(service)
                return
            service.is_nominated = True
            await self._pods.nominate(plan.pod, plan.node_name, self._clock() + CALL_SECONDS)
        except (RefusedError, NoAnswerError) as error:
            await self._withdraw(service, error)
            return
        self._metrics.card_preemptions.labels("begun").inc()
        self._tell_plan(plan, "are evicted for it")
        await self._evict_victims(service)

    def _adopt_services(self, kept: Mapping[str, str]) -> None:
        """Pods for which an earlier extender has evicted all that is needed: see that they are bound, or give their cards back."""
        for uid, node_name in kept.items():
            pod = self._ledger.get_pod(uid)
            if pod is not None and pod.preemption_node and not self.is_served(uid):
                plan = CardPlan(pod, node_name, (), ADOPTED_GRACE_SECONDS)
                self._services[uid] = Service(plan, self._clock(), [], is_begun=True)

    async def _continue_service(self, service: Service) -> None:
        pod, plan, now = self._ledger.get_pod(service.plan.pod.uid), service.plan, self._clock()
        if pod is None or pod.is_terminating:
            self._end_service(service, "gone")
            return
        if pod.node_name:
            self._end_service(service, "served" if pod.node_name == plan.node_name else "elsewhere")
            return
        if self._is_placed(pod, plan):
            service.gone_at = None  # it may wait there for a volume, for minutes
            return
        self._keep_cards(service)
        if service.gone_at is None and not self._has_ending_pods(plan):
            service.gone_at = now
        if now >= service.deadline:
            self._attempts[pod.uid] = PlanAttempt(next_at=now + IN_VAIN_PAUSE_SECONDS)
            self._end_service(service, "in_vain")
            await self._nominate(pod, "")
            return
        await self._evict_victims(service)
        if pod.nominated_node != plan.node_name and self.is_served(pod.uid):
            # A scheduler ends a nomination when it tries the pod before its victims are gone.
            await self._nominate(pod, plan.node_name)

    def _is_placed(self, pod: Pod, plan: CardPlan) -> bool:
        """Whether its scheduler has a node for it. One that calls another extender shows that by its own nomination alone.

        If filter has refused the pod since, that nomination has come to nothing.
        """
        if self._ledger.places.list_places_of(pod.uid):
            return True
        seen_at = self._ledger.nominations.get_seen_at(pod.uid)
        if seen_at is None or pod.nominated_node in ("", plan.node_name):
            return False
        refused_at = self._calls.get_refused_at(pod.uid)
        return refused_at is None or refused_at <= seen_at

    def _has_ending_pods(self, plan: CardPlan) -> bool:
        if plan.victims:
            return any(self._ledger.get_pod(victim.uid) is not None for victim in plan.victims)
        return any(hold.state == "terminating" for hold in self._ledger.list_holds(plan.node_name))

    def _keep_cards(self, service: Service) -> None:
        """As after an answer of the verb preempt, which counts for 5 s."""
        plan = service.plan
        pod = self._ledger.get_pod(plan.pod.uid) or plan.pod
        victims = {plan.node_name: [victim.uid for victim in plan.victims]}
        self._nominator.add_preemption(pod, victims, [plan.node_name])
        self._activator.on_evictions_expected()

    async def _nominate(self, pod: Pod, node_name: str) -> None:
        """Or end its nomination; a failure is only logged."""
        try:
            await self._pods.nominate(pod, node_name, self._clock() + CALL_SECONDS)
        except (RefusedError, NoAnswerError) as error:
            log.warning("nomination not written pod=%s node=%s error=%s", pod, node_name or "-", error)

    async def _evict_victims(self, service: Service) -> None:
        """Evict those that are left. A refusal ends the plan while no victim has gone; later it is tried again."""
        for victim in list(service.left):
            if not self._lease.is_held:
                return
            if not self._may_evict(service):
                if not service.is_begun:
                    await self._give_up(service)
                return
            try:
                await self._api.evict(victim.namespace, victim.name, victim.uid, timeout_seconds=CALL_SECONDS)
            except RefusedError as error:
                is_gone = error.status in GONE_STATUSES
                result = "gone" if is_gone else "budget" if error.status == TOO_MANY_REQUESTS else "failed"
                self._metrics.card_preemption_evictions.labels(result).inc()
                if is_gone and self._ledger.get_pod(victim.uid) is None:
                    service.left.remove(victim)
                    continue
                if not service.is_begun:
                    await self._withdraw(service, error)
                return
            except NoAnswerError as error:
                log.warning("eviction not answered pod=%s for=%s error=%s", victim, service.plan.pod, error)
                self._metrics.card_preemption_evictions.labels("failed").inc()
                service.is_begun = True
                return
            service.left.remove(victim)
            service.is_begun = True
            self._attempts.setdefault(service.plan.pod.uid, PlanAttempt()).withdrawals = 0
            self._note_eviction(service.plan, victim)

    def _note_eviction(self, plan: CardPlan, victim: Pod) -> None:
        self._budget.record_eviction(victim)
        self._metrics.card_preemption_evictions.labels("evicted").inc()
        text = f"evicted, so that {plan.pod} with priority {plan.pod.priority} finds its cards on node {plan.node_name}"
        self._events.record_pod_event(victim, EventReason.PREEMPTED, text)
        log.warning("pod preempted pod=%s uid=%s node=%s for=%s", victim, victim.uid, plan.node_name, plan.pod)

    async def _give_up(self, service: Service) -> None:
        """No victim is needed now. The node is as good as before."""
        attempt = self._attempts.setdefault(service.plan.pod.uid, PlanAttempt())
        attempt.next_at = self._clock() + PATIENCE_SECONDS
        await self._drop_service(service)

    async def _withdraw(self, service: Service, error: RefusedError | NoAnswerError) -> None:
        """No victim went: another node may do, but after some of them other pods come first."""
        plan = service.plan
        self._put_off(plan.pod, f"those on node {plan.node_name} may not be evicted: {error}")
        attempt = self._attempts[plan.pod.uid]
        attempt.avoided_until[plan.node_name] = self._clock() + AVOID_SECONDS
        attempt.withdrawals += 1
        if attempt.withdrawals < MAX_WITHDRAWALS:
            attempt.next_at = 0.0
        await self._drop_service(service)

    async def _drop_service(self, service: Service) -> None:
        """No victim went, and none will."""
        self._end_service(service, "withdrawn")
        if service.is_nominated:
            await self._nominate(service.plan.pod, "")

    def _end_service(self, service: Service, result: str) -> None:
        plan = service.plan
        self._services.pop(plan.pod.uid, None)
        self._nominator.withdraw_preemption(plan.pod.uid)
        self._metrics.card_preemptions.labels(result).inc()
        level = logging.WARNING if result == "in_vain" else logging.INFO
        log.log(level, "preemption ended pod=%s node=%s result=%s", plan.pod, plan.node_name, result)
