"""The parts of the extender that decide, wired together over one ledger: for the service, and for a simulation of it."""

from __future__ import annotations

import logging
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from extender.answers.answer_writer import AnswerWriter
from extender.card_preemption.card_preemptor import LEASE_NAME, CardPreemptor
from extender.card_preemption.refused_calls import RefusedCalls
from extender.events import ExtenderEventRecorder
from extender.http.explain_view import ExplainView
from extender.http.placements_view import PlacementsView
from extender.http.timed_verbs import AsyncVerb, SyncVerb, TimedVerbs
from extender.metrics import ExtenderMetrics
from extender.preemption.preempt import Preemption
from extender.requeue.activator import PodActivator
from extender.scheduling.binding import Binder
from extender.scheduling.cache_rebuild import CacheRebuild
from extender.scheduling.call_preparation import CallPreparation, RankingPreparation
from extender.scheduling.engine_follower import EngineFollower
from extender.scheduling.mix_learner import MixLearner
from extender.scheduling.named_places import NamedPlaces
from extender.scheduling.node_backoff import NodeBackoff
from extender.scheduling.pod_generations import PodGenerations
from extender.scheduling.rejection_cache import RejectionCache
from extender.scheduling.shadow_judge import ShadowJudge
from extender.scheduling.verbs import Verbs
from extender.settings import ExtenderConfiguration
from extender.state.group_fit import GroupFit
from extender.state.host_usage import HostUsage
from extender.state.ledger import Ledger
from extender.state.ledger_problems import LedgerProblem
from extender.state.namespaces import NamespaceLabels
from extender.state.node_labels import NodeLabels
from extender.state.nominator import Nominator
from extender.state.pending_preemptions import PendingPreemptions
from extender.state.placement_change import apply_placement
from extender.state.pod_client import PodClient
from extender.state.pod_groups import PodGroups
from extender.state.soft_reservations import SoftReservations
from extender.state.sync import ProblemReporter, ReadinessCheck
from extender.wire.args import ArgsReader
from policies.engine.engine import Engine
from vrampack.cards.pod_group import GroupKey
from vrampack.kube.client import Api
from vrampack.kube.leader_lease import LeaderLease
from vrampack.kube.objects import NodeObject, PodObject
from vrampack.kube.reflector import Reflector

log = logging.getLogger(__name__)

NS_PER_SECOND = 1_000_000_000
INSTALLATION_NAMESPACE = "vrampack-system"
"""Where the Leases are for an extender that does not know its own pod."""


@dataclass(frozen=True, slots=True)
class Components:
    """See `build_components`."""

    ledger: Ledger
    hosts: HostUsage
    engine: Engine
    args: ArgsReader
    soft_reservations: SoftReservations
    places: NamedPlaces
    binder: Binder
    activator: PodActivator
    engine_follower: EngineFollower
    mix_learner: MixLearner
    verbs: Verbs
    answers: AnswerWriter
    preemption: Preemption
    preemption_lease: LeaderLease
    card_preemptor: CardPreemptor
    timed_verbs: TimedVerbs
    shadow_judge: ShadowJudge
    placements_view: PlacementsView
    explain_view: ExplainView
    generations: PodGenerations
    groups: PodGroups
    cache_rebuild: CacheRebuild

    async def apply_settings(
        self,
        settings: ExtenderConfiguration,
        namespaces: NamespaceLabels,
        reflectors: tuple[Reflector[PodObject], Reflector[NodeObject]],
    ) -> None:
        """Apply every field of `RELOADABLE_FIELDS`. `namespaces` has the labels that the settings ask for."""
        await apply_placement(self.ledger, settings.build_placement(), namespaces)
        self.engine.set_tuning(settings.select_policies())
        self.shadow_judge.set_tuning(settings.policy)
        self.generations.begin_generation()
        self.mix_learner.on_policy_changed()
        if self.hosts.set_kept(is_kept=settings.select_policies().reads_hosts):
            self.args.forget_pods()
            for reflector in reflectors:
                reflector.request_list()
        self.ledger.apply_policy_change()


class LedgerReactions:
    """A `LedgerListener` that passes changes on to the other components."""

    def __init__(
        self,
        activator: PodActivator,
        soft_reservations: SoftReservations,
        reporter: ProblemReporter,
        engine_follower: EngineFollower,
        mix_learner: MixLearner,
        cache_rebuild: CacheRebuild,
    ) -> None:
        self._cache_rebuild = cache_rebuild
        self._activator = activator
        self._soft_reservations = soft_reservations
        self._reporter = reporter
        self._engine_follower = engine_follower
        self._mix_learner = mix_learner

    def on_node_changed(self) -> None:
        self._engine_follower.on_node_changed()

    def on_capacity_gained(self) -> None:
        self._activator.on_capacity_gained()

    def on_pod_added(self, uid: str) -> None:
        self._activator.on_pod_added(uid)
        try:
            self._mix_learner.on_pod_added(uid)
        except Exception:
            # It asks the engine, whose fault must not end the watch of pods.
            log.exception("pod not counted for the forecast uid=%s", uid)
            self._cache_rebuild.on_fault("mix")

    def on_group_changed(self, group: GroupKey) -> None:
        self._activator.on_group_changed(group)

    def on_pod_resolved(self, uid: str) -> None:
        self._soft_reservations.release_pod(uid)

    def on_problem_found(self, problem: LedgerProblem) -> None:
        self._reporter.report_ledger_problem(problem)


def build_lease(
    api: Api, namespace: str, name: str, *, clock: Callable[[], float], now_ns: Callable[[], int]
) -> LeaderLease:
    """The claim of this process to a Lease."""
    return LeaderLease(
        api,
        namespace=namespace,
        name=name,
        identity=f"{socket.gethostname()}_{uuid.uuid4()}",
        clock=clock,
        now=lambda: now_ns() / NS_PER_SECOND,
    )


def build_components(  # noqa: PLR0913 - what the parts share
    *,
    ledger: Ledger,
    api: Api,
    events: ExtenderEventRecorder,
    reporter: ProblemReporter,
    metrics: ExtenderMetrics,
    settings: ExtenderConfiguration,
    readiness: ReadinessCheck,
    clock: Callable[[], float],
    now_ns: Callable[[], int],
    hosts: HostUsage | None = None,
    node_labels: NodeLabels | None = None,
    lease_namespace: str = INSTALLATION_NAMESPACE,
) -> Components:
    """Build all verbs over this new ledger. `clock` counts seconds, `now_ns` is Unix time."""
    hosts = hosts or HostUsage(is_kept=False)
    soft_reservations = SoftReservations(clock, ledger.places.list_held_places_of)
    nominator = Nominator(ledger, PendingPreemptions(ledger, clock=clock))
    resource = settings.resources.memory
    pods = PodClient(ledger, api, resource=resource, clock=clock, started_ns=now_ns(), hosts=hosts)
    groups = PodGroups()
    group_fit = GroupFit(ledger, groups, node_labels or NodeLabels())
    places = NamedPlaces(ledger, soft_reservations, settings, readiness, group_fit, clock=clock)
    engine = Engine(nominator, settings.select_policies(), soft_reservations=soft_reservations, hosts=hosts.rooms)
    generations = PodGenerations(engine)
    binder = Binder(
        ledger=ledger,
        nominator=nominator,
        engine=engine,
        places=places,
        api=api,
        pods=pods,
        events=events,
        metrics=metrics,
        settings=settings,
        clock=clock,
        now_ns=now_ns,
        generations=generations,
    )
    activator = PodActivator(
        ledger=ledger,
        engine=engine,
        nominator=nominator,
        pods=pods,
        group_fit=group_fit,
        metrics=metrics,
        readiness=readiness,
        clock=clock,
    )
    groups.add_listener(activator.on_group_changed)
    refused_calls = RefusedCalls(activator, ledger, clock=clock)
    preemption_lease = build_lease(api, lease_namespace, LEASE_NAME, clock=clock, now_ns=now_ns)
    card_preemptor = CardPreemptor(
        ledger=ledger,
        nominator=nominator,
        activator=activator,
        calls=refused_calls,
        api=api,
        pods=pods,
        lease=preemption_lease,
        events=events,
        metrics=metrics,
        readiness=readiness,
        settings=settings.preemption,
        clock=clock,
    )
    engine_follower = EngineFollower(engine, nominator)
    args = ArgsReader(resource, ledger.label_keys, hosts)
    preparation = RankingPreparation(args, engine_follower, ledger, nominator, engine)
    mix_learner = MixLearner(ledger, engine)
    cache_rebuild = CacheRebuild(metrics, clock)
    ledger.add_listener(
        LedgerReactions(activator, soft_reservations, reporter, engine_follower, mix_learner, cache_rebuild)
    )
    shadow_judge = ShadowJudge(nominator, engine, metrics, settings.policy, cpu_clock=time.thread_time)
    rejections = RejectionCache()
    answers = AnswerWriter(
        ledger=ledger,
        nominator=nominator,
        engine=engine,
        group_fit=group_fit,
        pods=pods,
        events=events,
        readiness=readiness,
        clock=clock,
        now=lambda: now_ns() / NS_PER_SECOND,
    )
    for cache in (nominator, engine, shadow_judge, rejections, engine_follower):
        cache_rebuild.add_cache(cache)
    verbs = Verbs(
        ledger=ledger,
        nominator=nominator,
        engine=engine,
        binder=binder,
        places=places,
        node_backoff=NodeBackoff(clock),
        listener=activator if settings.preemption.by_card == "never" else refused_calls,
        metrics=metrics,
        readiness=readiness,
        args=args,
        decision=settings.decide,
        generations=generations,
        shadow_judge=shadow_judge,
        rejections=rejections,
        group_fit=group_fit,
        answers=answers,
    )
    preemption = Preemption(
        ledger=ledger,
        nominator=nominator,
        listener=activator,
        metrics=metrics,
        readiness=readiness,
        resource=resource,
        generations=generations,
        by_card=card_preemptor,
        group_fit=group_fit,
    )
    on_fault = cache_rebuild.on_fault
    return Components(
        ledger=ledger,
        hosts=hosts,
        engine=engine,
        args=args,
        soft_reservations=soft_reservations,
        places=places,
        binder=binder,
        activator=activator,
        engine_follower=engine_follower,
        mix_learner=mix_learner,
        verbs=verbs,
        answers=answers,
        preemption=preemption,
        preemption_lease=preemption_lease,
        card_preemptor=card_preemptor,
        timed_verbs=TimedVerbs(
            filter=SyncVerb("filter", verbs.filter, metrics, on_fault, preparation),
            prioritize=SyncVerb("prioritize", verbs.prioritize, metrics, on_fault, preparation),
            preempt=AsyncVerb("preempt", preemption.preempt, metrics, on_fault),
            bind=AsyncVerb("bind", verbs.bind, metrics, on_fault, CallPreparation(args, engine_follower)),
        ),
        placements_view=PlacementsView(ledger, soft_reservations, nominator),
        shadow_judge=shadow_judge,
        explain_view=ExplainView(ledger, nominator, engine, generations, group_fit),
        generations=generations,
        groups=groups,
        cache_rebuild=cache_rebuild,
    )
