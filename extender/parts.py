"""The parts that decide, wired together over one ledger: for the service, and for whatever simulates one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from extender.attempts import Attempts
from extender.binding import Binder
from extender.events import EventWriter
from extender.evictions import Evictions
from extender.kicks import Kicker
from extender.ledger import Ledger
from extender.metrics import Metrics
from extender.nominations import Nominations
from extender.places import Places
from extender.preemption import Preemption
from extender.promises import Promises
from extender.settings import ExtenderConfiguration
from extender.verbs import Verbs
from policies.engine import Engine
from vrampack.kube.client import Api


@dataclass(frozen=True, slots=True)
class Parts:
    """See `assemble`."""

    engine: Engine
    promises: Promises
    binder: Binder
    kicker: Kicker
    verbs: Verbs
    preemption: Preemption
    places: Places


def assemble(  # noqa: PLR0913 - what the parts share
    *,
    ledger: Ledger,
    api: Api,
    events: EventWriter,
    metrics: Metrics,
    settings: ExtenderConfiguration,
    problem: Callable[[], str],
    clock: Callable[[], float],
    now_ns: Callable[[], int],
) -> Parts:
    """All verbs over this ledger. `problem` says why they may not answer, `clock` counts seconds, `now_ns` is Unix time."""
    promises = Promises(clock)
    nominations = Nominations(ledger, Evictions(pod_of=ledger.pod, clock=clock))
    engine = Engine(nominations, settings.policy, promised=promises)
    binder = Binder(
        ledger=ledger,
        engine=engine,
        promises=promises,
        api=api,
        events=events,
        metrics=metrics,
        settings=settings,
        clock=clock,
        now_ns=now_ns,
    )
    kicker = Kicker(
        ledger=ledger,
        engine=engine,
        nominations=nominations,
        api=api,
        metrics=metrics,
        problem=problem,
        clock=clock,
        started_ns=now_ns(),
    )
    ledger.listen(kicker)
    ledger.on_settled(promises.end)
    resource = settings.resources.memory
    verbs = Verbs(
        engine=engine,
        room=ledger,
        binder=binder,
        promises=promises,
        attempts=Attempts(clock),
        listener=kicker,
        metrics=metrics,
        problem=problem,
        resource=resource,
        deciding=settings.decide,
    )
    preemption = Preemption(
        ledger=ledger,
        nominations=nominations,
        listener=kicker,
        metrics=metrics,
        problem=problem,
        resource=resource,
    )
    places = Places(ledger, promises, nominations)
    return Parts(engine, promises, binder, kicker, verbs, preemption, places)
