"""One bind, from the call to a confirmed outcome: decide, reserve, one POST, and an answer that the API server backs.

The answer to the POST decides what happens to the reservation:

    201                  bound: the place is the pod's until the watch or a GET shows the pod itself elsewhere or gone
    409                  GET: bound by us to this node is success. At another version than the Binding's the pod only
                         changed meanwhile: decide again for the pod as it is now, and send that. At the same version
                         nothing is known: an API server answers 409 for errors of its own store too
    other 4xx, too large a refusal; the place is free again
    not sent             too many Bindings are under way (`BindingsInFlight`): the place is free again
    5xx, time-out, cut   the watch by now, or a GET: bound by us to this node is success, unbound at another version than
                         the Binding's is a refusal; otherwise the outcome is not known yet: the place stays held, and
                         the answer begins with `bind outcome unknown`. `BindingFence` ends that

A pod has one place: a place that an earlier bind left on another node is fenced before this bind is decided.
Of the call only the pod's identity is trusted: its request is read from the pod that the API server has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from http import HTTPStatus

from extender.events import EventReason, ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.scheduling.bind_outcome import (
    BOUND_OUTCOME,
    OUTCOME_UNKNOWN,
    PLACEHOLDER_REFUSAL,
    BindOutcome,
    StaleBinding,
    name_refusal,
    resolve_already_bound,
)
from extender.scheduling.binding_fence import CONFIRM_AFTER_SECONDS, BindingFence
from extender.scheduling.bindings_in_flight import BindingsInFlight
from extender.scheduling.named_places import NamedPlaces
from extender.scheduling.pod_generations import PodGenerations
from extender.settings import ExtenderConfiguration
from extender.state.ledger import Ledger
from extender.state.nominator import Nominator
from extender.state.pod_client import PodClient
from extender.wire.codec import BindingArgs
from policies.engine.engine import Engine
from vrampack.cards.allocation import Allocation, allocate_cards, describe_allocation
from vrampack.cards.fit import Unfit
from vrampack.cards.node import Node
from vrampack.cards.pod import Pod
from vrampack.cards.records import write_fraction_annotations, write_record
from vrampack.cards.request import PodRequest
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError, RefusedError, UnsentError

log = logging.getLogger(__name__)

CONFIRM_INTERVAL_SECONDS = 1.0


class Binder:
    """Binds pods. Overlapping binds of one pod to one node are merged."""

    def __init__(  # noqa: PLR0913 - what a bind needs
        self,
        *,
        ledger: Ledger,
        nominator: Nominator,
        engine: Engine,
        places: NamedPlaces,
        api: Api,
        pods: PodClient,
        events: ExtenderEventRecorder,
        metrics: ExtenderMetrics,
        settings: ExtenderConfiguration,
        clock: Callable[[], float],
        now_ns: Callable[[], int],
        generations: PodGenerations,
    ) -> None:
        self._generations = generations
        self._ledger = ledger
        self._nominator = nominator
        self._engine = engine
        self._places = places
        self._api = api
        self._pods = pods
        self._events = events
        self._metrics = metrics
        self._settings = settings
        self._clock = clock
        self._now_ns = now_ns
        self._binds_in_flight: dict[BindingArgs, asyncio.Task[BindOutcome]] = {}
        """Keyed by the whole call: a call that names a pod wrongly must not be merged with a right one."""
        self._in_flight = BindingsInFlight()
        self._fence = BindingFence(ledger, pods, call_seconds=settings.deadlines.bind_seconds, clock=clock)

    async def bind(self, args: BindingArgs) -> BindOutcome:
        """Bind the pod, or say why not. Never raises for what the API server does."""
        began_at = self._clock()
        task = self._binds_in_flight.get(args)
        if task is None:
            earlier = [task for other, task in self._binds_in_flight.items() if other.pod_uid == args.pod_uid]
            deadline = began_at + self._settings.deadlines.bind_seconds
            task = asyncio.create_task(self._bind_after(earlier, args, deadline))
            self._binds_in_flight[args] = task
            task.add_done_callback(lambda _: self._binds_in_flight.pop(args, None))
        # A caller that hangs up must not take the Binding of another one with it.
        outcome = await asyncio.shield(task)
        self._places.end_attempt(args.pod_uid, began_at)
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
        """Look up the pods of old reservations; see `BindingFence`."""
        await self._fence.confirm_reservations({(args.pod_uid, args.node) for args in self._binds_in_flight})

    async def _bind_after(
        self, earlier: Collection[asyncio.Task[BindOutcome]], args: BindingArgs, deadline: float
    ) -> BindOutcome:
        """Bind when the earlier binds of this pod, to other nodes, have ended."""
        if earlier:
            _, unfinished = await asyncio.wait(earlier, timeout=max(0.0, deadline - self._clock()))
            if unfinished:
                name = f"{args.pod_namespace}/{args.pod_name}"
                return BindOutcome("deadline", f"pod {name}: an earlier bind has not ended; nothing was bound")
        return await self._bind(args, deadline)

    async def _bind(self, args: BindingArgs, deadline: float) -> BindOutcome:
        pod = await self._prepare_pod(args, deadline)
        if isinstance(pod, BindOutcome):
            return pod
        if pod.node_name:
            return resolve_already_bound(pod, args.node)
        if pod.is_terminating or pod.is_finished:
            return BindOutcome("pod_gone", f"pod {pod} is being deleted or has finished; nothing was bound")
        if pod.is_placeholder:
            return BindOutcome("conflict", f"{PLACEHOLDER_REFUSAL}; nothing was bound")
        outcome = await self._bind_once(pod, args.node, deadline)
        if isinstance(outcome, StaleBinding):
            self._metrics.stale_bindings.inc()
            self._ledger.record_binding(pod.uid, args.node, outcome.pod.resource_version)
            outcome = await self._bind_once(outcome.pod, args.node, deadline)
        if isinstance(outcome, StaleBinding):
            outcome = BindOutcome("not_written", f"pod {pod} keeps changing; nothing was bound")
            self._report_failure(pod, args.node, outcome)
        held = self._ledger.places.get_reservation_on(pod.uid, args.node)
        if outcome.error and held is not None and not held.is_unconfirmed:
            self._ledger.forget(pod.uid, args.node)
        return outcome

    async def _prepare_pod(self, args: BindingArgs, deadline: float) -> Pod | BindOutcome:
        """The pod of the call, without a place on any other node; or why it is not bound."""
        pod = self._ledger.get_pod(args.pod_uid)
        if pod is None or (pod.namespace, pod.name) != (args.pod_namespace, args.pod_name):
            fetched = await self._fetch_unknown_pod(args, deadline)
            if isinstance(fetched, BindOutcome):
                return fetched
            pod = fetched
        problem = self._ledger.in_force.find_unready_reason(pod.namespace)
        if pod.request is not None and problem:
            return BindOutcome("unready", f"not ready: {problem}; nothing was bound")
        return await self._settle_earlier_binding(pod, args.node, deadline)

    async def _settle_earlier_binding(self, pod: Pod, node_name: str, deadline: float) -> Pod | BindOutcome:
        """The pod, once it is certain that an earlier Binding landed or never will, if it is to another node or lost cards.

        A second bind of the same pod and node is answered from a Binding that was written. If the watch has not shown that
        one for a while, the pod is read: a restored backup may have lost it.
        """
        reservation = self._ledger.places.get_reservation(pod.uid)
        if reservation is None:
            return pod
        node = self._ledger.get_node(node_name)
        is_here = reservation.node_name == node_name
        if is_here and reservation.is_written and self._ledger.get_age_seconds(reservation) < CONFIRM_AFTER_SECONDS:
            return BOUND_OUTCOME
        if is_here and reservation.may_land_on(pod) and node is not None and _has_cards(node, reservation.allocation):
            return pod
        try:
            seen = await self._fence.fence_reservation(reservation, deadline)
        except (NoAnswerError, RefusedError) as error:
            if is_here and reservation.is_written:
                return BOUND_OUTCOME
            text = f"pod {pod} may still be bound to node {reservation.node_name}: {error}; nothing was bound"
            return BindOutcome("not_written", text)
        return (
            BindOutcome("pod_gone", f"pod {pod} with uid {pod.uid} is gone; nothing was bound")
            if seen is None
            else seen
        )

    async def _bind_once(self, pod: Pod, node_name: str, deadline: float) -> BindOutcome | StaleBinding:
        """Decide for the pod in this state, and send one Binding."""
        node = self._ledger.get_node_for_pod(node_name, pod.uid)
        if node is None:
            return BindOutcome("node_gone", f"node {node_name} does not exist; nothing was bound")
        if pod.request is None:
            return await self._post_binding(pod, node_name, {}, deadline)
        pod_request = self._generations.apply_pin(pod.uid, pod.request)
        allocation = self._reserve_cards(pod, pod_request, node)
        if isinstance(allocation, BindOutcome):
            return allocation
        self._places.on_pod_reserved(pod, node_name)
        started = self._clock()
        record = self._build_record(allocation, pod_request, node)
        outcome = await self._post_binding(pod, node_name, record, deadline)
        if isinstance(outcome, BindOutcome) and outcome.error:
            self._report_failure(pod, node_name, outcome)
        elif isinstance(outcome, BindOutcome):
            policy = self._engine.choose_policy(pod_request).name
            self._report_success(pod, node, allocation, policy=policy, started=started)
        return outcome

    def _reserve_cards(self, pod: Pod, pod_request: PodRequest, node: Node) -> Allocation | BindOutcome:
        """The pod's cards, reserved, or why it gets none. It keeps its cards while a Binding with them may still land."""
        if node.needs_references and not pod_request.has_references:
            return BindOutcome(
                "malformed",
                f"pod {pod} was created before the admission policy; recreate it: its containers do not take their card "
                f"from its annotations, and node {node.name} gives them none",
            )
        earlier = self._ledger.places.get_reservation_on(pod.uid, node.name)
        if earlier is not None and earlier.is_unconfirmed:
            return earlier.allocation
        self._nominator.note_caller(pod)
        evaluation = self._engine.evaluate_node(node.name, pod_request, pod.uid)
        if isinstance(evaluation, Unfit):
            self._metrics.bind_conflicts.inc()
            why = pod_request.problem or f"node {node.name}: {evaluation.reason.value}"
            return BindOutcome("no_capacity", f"{why}; nothing was bound")
        allocation = allocate_cards(node, evaluation.cards, pod_request, reserve_mib=self._settings.reserve_mib)
        self._ledger.assume(pod, node.name, allocation)
        return allocation

    def _build_record(self, allocation: Allocation, pod_request: PodRequest, node: Node) -> dict[str, str]:
        record = write_record(allocation, pod_request, node, now_ns=self._now_ns())
        return record | write_fraction_annotations(allocation) if self._settings.nvidia_fractions else record

    async def _post_binding(
        self, pod: Pod, node_name: str, annotations: dict[str, str], deadline: float
    ) -> BindOutcome | StaleBinding:
        """One POST, and what its answer means. A pod that asks for no card memory is bound at any version."""
        remaining = deadline - self._clock()
        if remaining <= 0:
            text = f"pod {pod}: the deadline passed before the Binding was sent; nothing was bound"
            return BindOutcome("deadline", text)
        try:
            await self._send_binding(pod, node_name, annotations, deadline)
        except RefusedError as error:
            if error.status == HTTPStatus.CONFLICT:
                return await self._resolve_conflict(pod, node_name, error, deadline)
            return self._resolve_unwritten(pod, node_name, name_refusal(error), error)
        except UnsentError as error:
            return self._resolve_unwritten(pod, node_name, "not_written", error)
        except NoAnswerError as error:
            return await self._resolve_no_answer(pod, node_name, error, deadline)
        self._ledger.mark_written(pod.uid, node_name)
        return BOUND_OUTCOME

    async def _send_binding(self, pod: Pod, node_name: str, annotations: dict[str, str], deadline: float) -> None:
        """One POST, with at least half of the time that is left for its answer. Raises what `Api.bind` raises."""
        number = await self._in_flight.enter((deadline - self._clock()) / 2)
        if not number:
            raise UnsentError(f"not sent: the API server is slow, and {self._in_flight.most} Bindings are under way")
        is_silent = False
        version = pod.resource_version if pod.request is not None else ""
        try:
            self._ledger.record_binding(pod.uid, node_name, version)
            await self._api.bind(
                pod.namespace, pod.name, pod.uid, node_name, annotations, version=version,
                timeout_seconds=deadline - self._clock(),
            )  # fmt: skip
        except RefusedError as error:
            is_silent = error.status == HTTPStatus.TOO_MANY_REQUESTS
            raise
        except NoAnswerError as error:
            is_silent = isinstance(error.__cause__, TimeoutError) and not isinstance(error, UnsentError)
            raise
        finally:
            self._in_flight.leave(number, is_silent=is_silent)

    def _resolve_unwritten(self, pod: Pod, node_name: str, result: str, error: Exception) -> BindOutcome:
        """What a Binding that was not written leaves: an earlier one may be."""
        held = self._ledger.places.get_reservation_on(pod.uid, node_name)
        if held is not None and held.is_unconfirmed:
            text = f"{OUTCOME_UNKNOWN}: pod {pod}: {error}; an earlier Binding may still land, its place is kept"
            return BindOutcome("api_error", text)
        return BindOutcome(result, f"pod {pod}: {error}; nothing was bound")

    async def _resolve_conflict(
        self, pod: Pod, node_name: str, refusal: RefusedError, deadline: float
    ) -> BindOutcome | StaleBinding:
        """409: the pod is bound, was changed or recreated, or is being deleted, or etcd failed. GET it to learn which."""
        try:
            seen = await self._pods.get_known_pod(pod, deadline)
        except (NoAnswerError, RefusedError) as error:
            # An earlier Binding of ours may have caused the conflict: keep the place until that is known.
            self._ledger.mark_unconfirmed(pod.uid, node_name)
            return BindOutcome("api_error", f"{OUTCOME_UNKNOWN}: pod {pod}: {refusal}; then {error}")
        if seen is None:
            return BindOutcome("uid_mismatch", f"pod {pod} with uid {pod.uid} is gone; nothing was bound")
        shown = self._ledger.get_pod(pod.uid)
        if shown is not None and shown.node_name:
            seen = shown  # the watch overtook the answer
        if seen.node_name:
            return self._resolve_seen_bound(seen, node_name)
        if seen.is_terminating or seen.is_gated or pod.request is None:
            return BindOutcome("conflict", f"pod {pod}: {refusal.message or refusal}; nothing was bound")
        if seen.resource_version != pod.resource_version:
            return StaleBinding(seen)
        self._ledger.mark_unconfirmed(pod.uid, node_name)
        return BindOutcome("api_error", f"{OUTCOME_UNKNOWN}: pod {pod}: {refusal}; not bound yet, its place is kept")

    async def _resolve_no_answer(
        self, pod: Pod, node_name: str, silence: NoAnswerError, deadline: float
    ) -> BindOutcome:
        """The Binding may have been written: only the pod tells, as the watch shows it by now or when fetched."""
        self._ledger.mark_unconfirmed(pod.uid, node_name)
        shown = self._ledger.get_pod(pod.uid)
        if shown is not None and shown.node_name:
            return resolve_already_bound(shown, node_name)
        try:
            seen = await self._pods.get_known_pod(pod, deadline)
        except (NoAnswerError, RefusedError) as error:
            return BindOutcome("api_error", f"{OUTCOME_UNKNOWN}: pod {pod}: {silence}; then {error}")
        if seen is None:
            return BindOutcome("pod_gone", f"pod {pod} with uid {pod.uid} is gone; nothing was bound")
        if seen.node_name:
            return self._resolve_seen_bound(seen, node_name)
        if pod.request is not None and seen.resource_version != pod.resource_version:
            self._ledger.forget(pod.uid, node_name)
            return BindOutcome("not_written", f"pod {pod}: {silence}; nothing was bound")
        return BindOutcome("api_error", f"{OUTCOME_UNKNOWN}: pod {pod}: {silence}; not bound yet, its place is kept")

    def _resolve_seen_bound(self, pod: Pod, node_name: str) -> BindOutcome:
        """The outcome for a pod shown as bound. One that is bound elsewhere loses its place here."""
        outcome = resolve_already_bound(pod, node_name)
        if outcome.error:
            self._ledger.release_place(pod.uid, node_name)
        return outcome

    async def _fetch_unknown_pod(self, args: BindingArgs, deadline: float) -> Pod | BindOutcome:
        """Fetch a pod that the ledger does not know; or why there is none to bind."""
        named_pod = Pod(args.pod_uid, args.pod_namespace, args.pod_name)
        try:
            seen = await self._pods.get_pod(named_pod, deadline)
        except (NoAnswerError, RefusedError) as error:
            return BindOutcome("api_error", f"pod {named_pod}: {error}; nothing was bound")
        if seen is None:
            return BindOutcome("pod_gone", f"pod {named_pod} does not exist; nothing was bound")
        if seen.uid != args.pod_uid:
            text = f"pod {named_pod} has uid {seen.uid}, but the call names {args.pod_uid}: it was recreated; nothing was bound"
            return BindOutcome("uid_mismatch", text)
        return seen

    def _report_success(self, pod: Pod, node: Node, allocation: Allocation, *, policy: str, started: float) -> None:
        cards = ",".join(map(str, allocation.card_indices))
        units = sum(card.units for card in allocation.cards)
        ms = (self._clock() - started) * 1000
        log.info("bound pod=%s node=%s card=%s units=%d policy=%s ms=%.1f", pod, node.name, cards, units, policy, ms)
        text = describe_allocation(allocation, node)
        self._events.record_pod_event(pod, EventReason.ASSIGNED, text, is_warning=False)

    def _report_failure(self, pod: Pod, node_name: str, outcome: BindOutcome) -> None:
        log.warning("bind failed pod=%s node=%s result=%s error=%s", pod, node_name, outcome.result, outcome.error)
        self._events.record_pod_event(pod, EventReason.BIND_FAILED, outcome.error)


def _has_cards(node: Node, allocation: Allocation) -> bool:
    """Whether the node still has the cards of an earlier allocation: its agent may report others, or other units, by now."""
    cards: dict[tuple[int | None, str | None], int] = {(card.index, card.uuid): card.units for card in node.cards}
    shares = [(share, cards.get((share.index, share.uuid), 0)) for share in allocation.cards]
    return all(
        (share.units == units if share.whole else share.units <= units) and share.card_units in (None, units)
        for share, units in shares
    )
