"""The parts that decide, wired together over one ledger: for the service, and for whatever simulates one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from extender.events import ExtenderEventRecorder
from extender.http.placements_view import PlacementsView
from extender.metrics import ExtenderMetrics
from extender.preemption.preempt import Preemption
from extender.requeue.activator import PodActivator
from extender.scheduling.binding import Binder
from extender.scheduling.node_backoff import NodeBackoff
from extender.scheduling.verbs import Verbs
from extender.settings import ExtenderConfiguration
from extender.state.ledger import Ledger
from extender.state.nominator import Nominator
from extender.state.pending_preemptions import PendingPreemptions
from extender.state.soft_reservations import SoftReservations
from policies.engine.engine import Engine
from vrampack.kube.client import Api


@dataclass(frozen=True, slots=True)
class Components:
    """See `assemble`."""

    engine: Engine
    soft_reservations: SoftReservations
    binder: Binder
    activator: PodActivator
    verbs: Verbs
    preemption: Preemption
    placements_view: PlacementsView


def build_components(  # noqa: PLR0913 - what the parts share
    *,
    ledger: Ledger,
    api: Api,
    events: ExtenderEventRecorder,
    metrics: ExtenderMetrics,
    settings: ExtenderConfiguration,
    find_unready_reason: Callable[[], str],
    clock: Callable[[], float],
    now_ns: Callable[[], int],
) -> Components:
    """All verbs over this ledger. `problem` says why they may not answer, `clock` counts seconds, `now_ns` is Unix time."""
    promises = SoftReservations(clock)
    nominations = Nominator(ledger, PendingPreemptions(get_pod=ledger.get_pod, clock=clock))
    engine = Engine(nominations, settings.policy, soft_reservations=promises)
    binder = Binder(
        ledger=ledger,
        engine=engine,
        soft_reservations=promises,
        api=api,
        events=events,
        metrics=metrics,
        settings=settings,
        clock=clock,
        now_ns=now_ns,
    )
    kicker = PodActivator(
        ledger=ledger,
        engine=engine,
        nominator=nominations,
        api=api,
        metrics=metrics,
        find_unready_reason=find_unready_reason,
        clock=clock,
        started_ns=now_ns(),
    )
    ledger.set_listener(kicker)
    ledger.set_resolved_callback(promises.release_pod)
    resource = settings.resources.memory
    verbs = Verbs(
        engine=engine,
        capacity=ledger,
        binder=binder,
        soft_reservations=promises,
        node_backoff=NodeBackoff(clock),
        listener=kicker,
        metrics=metrics,
        find_unready_reason=find_unready_reason,
        resource=resource,
        decision=settings.decide,
    )
    preemption = Preemption(
        ledger=ledger,
        nominator=nominations,
        listener=kicker,
        metrics=metrics,
        find_unready_reason=find_unready_reason,
        resource=resource,
    )
    places = PlacementsView(ledger, promises, nominations)
    return Components(engine, promises, binder, kicker, verbs, preemption, places)
