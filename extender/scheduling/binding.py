"""One bind, from the call to the truth: decide, reserve, one POST, and an answer that the API server backs.

Whatever the POST answered decides what happens to the reservation:

    201                  bound; the watch will confirm it
    409                  GET: bound by us to this node is success, anything else is a refusal
    other 4xx            a refusal; the place is free again
    5xx, time-out, cut   the watch by now, or a GET: bound by us to this node is success; otherwise the outcome is not
                         known yet: the place stays held, and the answer begins with `bind outcome unknown`

Nothing in the call but the pod's identity is believed: its request comes from the API server's own pod.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from extender.events import EventReason, ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.settings import ExtenderConfiguration
from extender.state.ledger import Ledger, Reservation
from extender.state.soft_reservations import SoftReservations
from extender.wire.codec import BindingArgs
from policies.engine.engine import Engine
from vrampack.cards.allocation import Allocation, allocate_cards
from vrampack.cards.fit import Unfit
from vrampack.cards.node import Node
from vrampack.cards.pod import Pod
from vrampack.cards.records import Record, write_fraction_annotations, write_record
from vrampack.cards.request import PodRequest
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.objects import to_pod

log = logging.getLogger(__name__)

OUTCOME_UNKNOWN = "bind outcome unknown"
"""How an answer begins when it is not known whether the pod is bound."""
CONFIRM_AFTER_SECONDS = 2.0
"""A reservation older than this is looked up: the watch shows a Binding within milliseconds."""
CONFIRM_INTERVAL_SECONDS = 1.0
CONFIRM_MAX_BACKOFF_SECONDS = 30.0
CONFLICT = 409
NOT_FOUND = 404
REFUSED_RESULTS = frozenset({"conflict", "pod_gone", "uid_mismatch", "refused", "deadline"})
"""Results after which a place just reserved is free again. A place that an earlier bind reserved without an answer stays
held: that Binding may still land."""


@dataclass(frozen=True, slots=True)
class BindOutcome:
    """How a bind ended: one of `metrics.BIND_RESULTS`, and the text for the scheduler, empty when bound."""

    result: str
    error: str = ""


BOUND_OUTCOME = BindOutcome("ok")


class Binder:
    """Binds pods. Binds of one pod to one node that overlap are one bind."""

    def __init__(  # noqa: PLR0913 - what a bind needs
        self,
        *,
        ledger: Ledger,
        engine: Engine,
        soft_reservations: SoftReservations,
        api: Api,
        events: ExtenderEventRecorder,
        metrics: ExtenderMetrics,
        settings: ExtenderConfiguration,
        clock: Callable[[], float],
        now_ns: Callable[[], int],
    ) -> None:
        self._ledger = ledger
        self._engine = engine
        self._soft_reservations = soft_reservations
        self._api = api
        self._events = events
        self._metrics = metrics
        self._settings = settings
        self._clock = clock
        self._now_ns = now_ns
        self._binds_in_flight: dict[BindingArgs, asyncio.Task[BindOutcome]] = {}
        """By the whole call: a call that names a pod wrongly must not be joined to the right one."""
        self._lookup_backoff: dict[tuple[str, str], tuple[float, float]] = {}
        """When to look up each reservation next, by uid and node, and how many seconds to wait after that."""

    async def bind(self, args: BindingArgs) -> BindOutcome:
        """Bind the pod, or say why not. Never raises for what the API server does."""
        task = self._binds_in_flight.get(args)
        if task is None:
            task = asyncio.create_task(self._bind(args, self._clock() + self._settings.deadlines.bind_seconds))
            self._binds_in_flight[args] = task
            task.add_done_callback(lambda _: self._binds_in_flight.pop(args, None))
        # A caller that hangs up must not take the Binding of another one with it.
        outcome = await asyncio.shield(task)
        self._soft_reservations.release_pod(args.pod_uid)
        self._metrics.binds.labels(outcome.result).inc()
        return outcome

    async def drain_binds(self, seconds: float) -> None:
        """Wait for the binds under way."""
        if self._binds_in_flight:
            await asyncio.wait(self._binds_in_flight.values(), timeout=seconds)

    async def run(self) -> None:
        """Look up old reservations once a second, until cancelled."""
        while True:
            await asyncio.sleep(CONFIRM_INTERVAL_SECONDS)
            await self.confirm_reservations()

    async def confirm_reservations(self) -> None:
        """Look up the pods of old reservations: each ends bound, or gone, or is looked up again later."""
        now = self._clock()
        waits = {}
        in_flight = {(args.pod_uid, args.node) for args in self._binds_in_flight}
        for each in self._ledger.list_reservations():
            key = (each.pod.uid, each.node_name)
            due, wait = self._lookup_backoff.get(key, (each.made_at + CONFIRM_AFTER_SECONDS, CONFIRM_AFTER_SECONDS))
            if now >= due and key not in in_flight:
                await self._confirm_reservation(each)
                due, wait = now + wait, min(wait * 2, CONFIRM_MAX_BACKOFF_SECONDS)
            waits[key] = (due, wait)
        self._lookup_backoff = waits

    async def _bind(self, args: BindingArgs, deadline: float) -> BindOutcome:
        pod = self._ledger.get_pod(args.pod_uid)
        if pod is None or (pod.namespace, pod.name) != (args.pod_namespace, args.pod_name):
            fetched = await self._fetch_unknown_pod(args, deadline)
            if isinstance(fetched, BindOutcome):
                return fetched
            pod = fetched
        if pod.node_name:
            return _resolve_already_bound(pod, args.node)
        if pod.is_terminating or pod.is_finished:
            return BindOutcome("pod_gone", f"pod {pod} is being deleted or has finished; nothing was bound")
        node = self._ledger.get_node_for_pod(args.node, pod.uid)
        if node is None:
            return BindOutcome("node_gone", f"node {args.node} does not exist; nothing was bound")
        if pod.request is None:
            return await self._send_binding(pod, args.node, {}, deadline)
        return await self._bind_memory_pod(pod, pod.request, node, deadline)

    async def _bind_memory_pod(self, pod: Pod, pod_request: PodRequest, node: Node, deadline: float) -> BindOutcome:
        if node.injection == "exact" and not node.legacy and not pod_request.has_references:
            return BindOutcome(
                "malformed",
                f"pod {pod} was created before the admission policy, recreate it: its containers do not take their card "
                f"from its annotations, and node {node.name} gives them none",
            )
        earlier = self._ledger.get_reservation(pod.uid, node.name)
        is_again = earlier is not None and _has_cards(node, earlier.allocation)
        if earlier is not None and is_again:
            allocation = earlier.allocation
        else:
            evaluation = self._engine.evaluate_node(node.name, pod_request, pod.uid)
            if isinstance(evaluation, Unfit):
                self._metrics.bind_conflicts.inc()
                why = pod_request.card_request.problem or f"node {node.name}: {evaluation.reason.value}"
                return BindOutcome("no_capacity", f"{why}; nothing was bound")
            allocation = allocate_cards(node, evaluation.cards, pod_request, reserve_mib=self._settings.reserve_mib)
        started = self._clock()
        record = self._build_record(allocation, pod_request, node)
        if not is_again:
            self._ledger.assume(pod, node.name, allocation)
        self._soft_reservations.release_pod(pod.uid)  # reserved now: it must not count twice
        outcome = await self._send_binding(pod, node.name, record, deadline)
        if earlier is None and outcome.result in REFUSED_RESULTS:
            self._ledger.forget(pod.uid, node.name)
        self._report_outcome(
            pod, node.name, allocation, outcome, policy=self._engine.choose_policy(pod_request), started=started
        )
        return outcome

    def _build_record(self, allocation: Allocation, pod_request: PodRequest, node: Node) -> dict[str, str]:
        record = write_record(allocation, pod_request, node, now_ns=self._now_ns())
        return record | write_fraction_annotations(allocation) if self._settings.nvidia_fractions else record

    async def _send_binding(
        self, pod: Pod, node_name: str, annotations: dict[str, str], deadline: float
    ) -> BindOutcome:
        """The one POST, and what its answer means."""
        remaining = deadline - self._clock()
        if remaining <= 0:
            text = f"pod {pod}: the deadline passed before the Binding was sent; nothing was bound"
            return BindOutcome("deadline", text)
        try:
            await self._api.bind(pod.namespace, pod.name, pod.uid, node_name, annotations, timeout_seconds=remaining)
        except RefusedError as error:
            if error.status == CONFLICT:
                return await self._resolve_conflict(pod, node_name, error, deadline)
            result = "pod_gone" if error.status == NOT_FOUND else "refused"
            return BindOutcome(result, f"pod {pod}: {error}; nothing was bound")
        except NoAnswerError as error:
            return await self._resolve_no_answer(pod, node_name, error, deadline)
        return BOUND_OUTCOME

    async def _resolve_conflict(self, pod: Pod, node_name: str, refusal: RefusedError, deadline: float) -> BindOutcome:
        """409 means that the pod is bound, was recreated, or is being deleted: ask which."""
        try:
            seen = await self._get_known_pod(pod, deadline)
        except (NoAnswerError, RefusedError) as error:
            # An earlier Binding of ours may be what we collided with: keep the place until that is known.
            self._ledger.mark_unconfirmed(pod.uid, node_name)
            return BindOutcome("api_error", f"{OUTCOME_UNKNOWN}: pod {pod}: {refusal}; then {error}")
        if seen is None:
            return BindOutcome("uid_mismatch", f"pod {pod} of uid {pod.uid} is gone; nothing was bound")
        if seen.node_name:
            return _resolve_already_bound(seen, node_name)
        return BindOutcome("conflict", f"pod {pod}: {refusal.message or refusal}; nothing was bound")

    async def _resolve_no_answer(
        self, pod: Pod, node_name: str, silence: NoAnswerError, deadline: float
    ) -> BindOutcome:
        """The Binding may have been written: only the pod shows it, on the watch by now or when it is fetched."""
        self._ledger.mark_unconfirmed(pod.uid, node_name)
        shown = self._ledger.get_pod(pod.uid)
        if shown is not None and shown.node_name:
            return _resolve_already_bound(shown, node_name)
        try:
            seen = await self._get_known_pod(pod, deadline)
        except (NoAnswerError, RefusedError) as error:
            return BindOutcome("api_error", f"{OUTCOME_UNKNOWN}: pod {pod}: {silence}; then {error}")
        if seen is None:
            return BindOutcome("pod_gone", f"pod {pod} of uid {pod.uid} is gone; nothing was bound")
        if seen.node_name:
            return _resolve_already_bound(seen, node_name)
        return BindOutcome("api_error", f"{OUTCOME_UNKNOWN}: pod {pod}: {silence}; not bound yet, its place is kept")

    async def _fetch_unknown_pod(self, args: BindingArgs, deadline: float) -> Pod | BindOutcome:
        """The pod that the ledger does not know, or why there is none to bind."""
        named_pod = Pod(args.pod_uid, args.pod_namespace, args.pod_name)
        try:
            seen = await self._get_pod(named_pod, deadline)
        except (NoAnswerError, RefusedError) as error:
            return BindOutcome("api_error", f"pod {named_pod}: {error}; nothing was bound")
        if seen is None:
            return BindOutcome("pod_gone", f"pod {named_pod} does not exist; nothing was bound")
        if seen.uid != args.pod_uid:
            text = f"pod {named_pod} has uid {seen.uid}, the call names {args.pod_uid}: it was recreated; nothing was bound"
            return BindOutcome("uid_mismatch", text)
        return seen

    async def _get_pod(self, pod: Pod, deadline: float) -> Pod | None:
        """The pod as the API server has it now; the ledger is updated too if it knows the pod and saw no change meanwhile.

        A watch event may overtake the answer: a pod that the event removed would otherwise come back for ever.
        """
        known = self._ledger.get_pod(pod.uid)
        remaining = deadline - self._clock()
        if remaining <= 0:
            raise NoAnswerError("the deadline passed")
        obj = await self._api.get_pod(pod.namespace, pod.name, timeout_seconds=remaining)
        seen = None if obj is None else to_pod(obj, resource=self._settings.resources.memory)
        if seen is not None and seen.uid == pod.uid and known is not None and self._ledger.get_pod(pod.uid) is known:
            self._ledger.update_fetched_pod(seen)
        return seen

    async def _get_known_pod(self, pod: Pod, deadline: float) -> Pod | None:
        """`_get_pod` for a pod that the API server itself showed before; None when that pod is gone, and released.

        Never for a pod that only a call names: a call that names another pod's uid must not free what that pod holds.
        """
        seen = await self._get_pod(pod, deadline)
        if seen is not None and seen.uid == pod.uid:
            return seen
        self._ledger.remove_pod(pod.uid)
        return None

    async def _confirm_reservation(self, reservation: Reservation) -> None:
        try:
            await self._get_known_pod(reservation.pod, self._clock() + self._settings.deadlines.bind_seconds)
        except (NoAnswerError, RefusedError) as error:
            log.warning(
                "reservation not confirmed pod=%s node=%s error=%s", reservation.pod, reservation.node_name, error
            )

    def _report_outcome(
        self, pod: Pod, node_name: str, allocation: Allocation, outcome: BindOutcome, *, policy: str, started: float
    ) -> None:
        cards = ",".join(str(card.index) for card in allocation.cards)
        units = sum(card.units for card in allocation.cards)
        ms = (self._clock() - started) * 1000
        if outcome.error:
            log.warning("bind failed pod=%s node=%s result=%s error=%s", pod, node_name, outcome.result, outcome.error)
            self._events.record_pod_event(pod, EventReason.BIND_FAILED, outcome.error)
            return
        log.info("bound pod=%s node=%s card=%s units=%d policy=%s ms=%.1f", pod, node_name, cards, units, policy, ms)
        text = f"{units} units on card {cards} of node {node_name}"
        self._events.record_pod_event(pod, EventReason.ASSIGNED, text, is_warning=False)


def _has_cards(node: Node, allocation: Allocation) -> bool:
    """Whether the cards of an earlier allocation are still there: the node's agent may report others by now."""
    cards = {(card.index, card.uuid): card.units for card in node.cards}
    shares = [(share, cards.get((share.index, share.uuid), 0)) for share in allocation.cards]
    return all(share.units == units if share.whole else share.units <= units for share, units in shares)


def _resolve_already_bound(pod: Pod, node_name: str) -> BindOutcome:
    """A pod is bound once: bound by us to this node is what the call asked for."""
    is_by_us = pod.request is None or (isinstance(pod.record, Record) and pod.record.is_ours)
    if pod.node_name == node_name and is_by_us:
        return BOUND_OUTCOME
    by = "" if is_by_us else " by somebody else"
    return BindOutcome("conflict", f"pod {pod} is already bound to node {pod.node_name}{by}; nothing was bound")
