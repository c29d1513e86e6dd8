"""Filter, prioritize and bind: from a body to an answer. Only bind changes the ledger.

A rejection is an answer, with a reason for each node; `Error` and HTTP errors are for our own failures. Which verb chooses
the node is set for each scheduler: prioritize by the highest score, or filter by letting only that node pass, so that the
scheduler skips its scoring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from extender.answers.answer_writer import AnswerWriter
from extender.metrics import ExtenderMetrics
from extender.scheduling.bind_outcome import API_FAILURES, PLACEHOLDER_REFUSAL
from extender.scheduling.binding import Binder
from extender.scheduling.named_places import NamedPlaces
from extender.scheduling.node_backoff import NodeBackoff
from extender.scheduling.pod_generations import PodGenerations
from extender.scheduling.rejection_cache import CachedRejection, RejectionCache, RejectionGeneration
from extender.scheduling.shadow_judge import ShadowJudge
from extender.settings import DecisionSettings
from extender.state.group_fit import GroupFit
from extender.state.ledger import Ledger
from extender.state.nominator import Nominator
from extender.state.sync import ReadinessCheck
from extender.wire.args import ArgsReader, SchedulingRequest
from extender.wire.codec import (
    MAX_SCORE,
    BindingResult,
    FilterResult,
    HostPriority,
    MalformedCallError,
    VerbResponse,
    encode_json,
    read_binding_args,
)
from policies.engine.engine import Engine
from policies.engine.filter_outcome import FilterOutcome, find_nearest_reason
from policies.policy import ScoredCards
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import PodRequest

SCORES = (MAX_SCORE, 5, 4, 3, 2, 1)
"""Best node first, all others 0: the best must win over all that the scheduler adds."""


class FilterListener(Protocol):
    """Is told of every call of filter."""

    def on_filter_called(self, scheduler_name: str) -> None:
        """A scheduler of this name asked about some pod, ours or not."""

    def on_filter_answered(self, uid: str, names: Collection[str], *, fits: bool, for_group: bool = False) -> None:
        """Whether this pod, which asks for memory, fits any of these nodes, and if not, whether that is `for_group`."""


class Verbs:
    """The verbs over one ledger."""

    def __init__(  # noqa: PLR0913 - what an answer is made of
        self,
        *,
        ledger: Ledger,
        nominator: Nominator,
        engine: Engine,
        binder: Binder,
        places: NamedPlaces,
        node_backoff: NodeBackoff,
        listener: FilterListener,
        metrics: ExtenderMetrics,
        readiness: ReadinessCheck,
        args: ArgsReader,
        decision: DecisionSettings,
        generations: PodGenerations,
        shadow_judge: ShadowJudge,
        rejections: RejectionCache,
        group_fit: GroupFit,
        answers: AnswerWriter,
    ) -> None:
        self._ledger = ledger
        self._nominator = nominator
        self._engine = engine
        self._binder = binder
        self._places = places
        self._node_backoff = node_backoff
        self._listener = listener
        self._readiness = readiness
        self._args = args
        self._decision = decision
        self._generations = generations
        self._shadow_judge = shadow_judge
        self._rejections = rejections
        self._group_fit = group_fit
        self._answers = answers
        self._rejected = {reason.value: metrics.rejected_nodes.labels(reason.value) for reason in UnfitReason}
        self._binds = metrics.binds

    def filter(self, body: bytes) -> VerbResponse:
        """Which of the named nodes can take the pod now; always HTTP 200.

        The scheduler also asks about a running pod that is resized in place: its card memory stays where it is, and cannot
        be resized.
        """
        problem = self._readiness.find_unready_reason()
        if problem:
            return _filter_error(f"not ready: {problem}")
        try:
            scheduling_request, names = self._args.read_args(body)
        except MalformedCallError as error:
            return _filter_error(str(error))
        self._listener.on_filter_called(scheduling_request.scheduler_name)
        pod = scheduling_request.pod
        if pod.request is None:
            return VerbResponse(encode_json(FilterResult(node_names=list(dict.fromkeys(names)))))
        problem = self._ledger.in_force.find_unready_reason(pod.namespace)
        if problem:
            return _filter_error(f"not ready: {problem}")
        self._nominator.note_caller(pod)
        pod_request = self._ledger.in_force.resolve_request(pod, pod.request)
        if pod.node_name:
            outcome = self._engine.filter_nodes(names, pod_request, pod.uid)
            if pod.node_name in names:
                outcome = outcome.with_node_passed(pod.node_name, names)
            return self._build_filter_response(outcome)
        return self._filter_unbound_pod(scheduling_request, pod_request, names)

    def prioritize(self, body: bytes) -> VerbResponse:
        """Scores of the best nodes, best first. The answer has no field for an error: 400 malformed, 503 not ready.

        The scheduler gives 0 to a node that is not in the answer (`prioritizeNodes` in kube-scheduler's schedule_one.go),
        so zeros are left out.
        """
        problem = self._readiness.find_unready_reason()
        if problem:
            return _plain_error(503, f"not ready: {problem}")
        try:
            scheduling_request, names = self._args.read_args(body)
        except MalformedCallError as error:
            return _plain_error(400, str(error))
        pod = scheduling_request.pod
        if pod.request is None:
            return VerbResponse(b"[]")
        problem = self._ledger.in_force.find_unready_reason(pod.namespace)
        if problem:
            return _plain_error(503, f"not ready: {problem}")
        self._nominator.note_caller(pod)
        pod_request = self._generations.apply_pin(pod.uid, self._ledger.in_force.resolve_request(pod, pod.request))
        best = self._rank_nodes(scheduling_request, pod_request, names, len(SCORES))
        if best and not pod.node_name:
            self._reserve_node(scheduling_request, pod_request, best[0])
        generation = self._generations.get_generation(pod.uid)
        body = encode_json([HostPriority(*each) for each in zip(best, SCORES, strict=False)])
        return VerbResponse(body, generation=generation)

    async def bind(self, body: bytes) -> VerbResponse:
        """Bind one pod; always HTTP 200. `Error` is empty only when the API server shows the pod bound."""
        problem = self._readiness.find_unready_reason()
        if problem:
            self._binds.labels("unready").inc()
            return _bind_error(f"not ready: {problem}; nothing was bound")
        try:
            args = read_binding_args(body)
        except MalformedCallError as error:
            self._binds.labels("malformed").inc()
            return _bind_error(f"{error}; nothing was bound")
        self._node_backoff.record_target(args.pod_uid, args.node)
        generation = self._generations.get_generation(args.pod_uid)
        outcome = await self._binder.bind(args)
        if not outcome.error:
            self._generations.forget_pod(args.pod_uid)
            self._node_backoff.forget_pod(args.pod_uid)
            self._node_backoff.record_success()
        elif outcome.result in API_FAILURES:
            self._node_backoff.excuse_target(args.pod_uid)
        elif outcome.result == "forbidden":
            self._node_backoff.excuse_target(args.pod_uid, is_once=True)
        body = encode_json(BindingResult(outcome.error))
        return VerbResponse(body, "error" if outcome.error else "ok", generation=generation)

    def _filter_unbound_pod(
        self, scheduling_request: SchedulingRequest, pod_request: PodRequest, names: Sequence[str]
    ) -> VerbResponse:
        if scheduling_request.pod.is_placeholder:
            return _filter_error(PLACEHOLDER_REFUSAL)
        uid = scheduling_request.pod.uid
        self._node_backoff.back_off_target(uid)
        self._places.begin_attempt(scheduling_request.pod, names, self._engine)
        self._generations.forget_pod(uid)
        key = self._engine.find_verdict_key(pod_request, uid)
        generation = RejectionGeneration(self._ledger.capacity_generation, self._ledger.cards_generation)
        rejection = None if key is None else self._rejections.find_rejection(key, names, generation)
        if rejection is not None:
            self._listener.on_filter_answered(uid, names, fits=False)
            self._count_rejections(rejection.reasons)
            self._note_refusal(scheduling_request, rejection.names, rejection.nearest_reason)
            return VerbResponse(rejection.body, "no", generation=self._generations.current)
        outcome = self._engine.filter_nodes(names, pod_request, uid)
        shortfall = self._group_fit.find_shortfall(scheduling_request.pod) if outcome.passed else None
        if shortfall is not None:
            self._places.release_pod(uid, "filtered")
            self._listener.on_filter_answered(uid, names, fits=False, for_group=True)
            self._note_refusal(scheduling_request, names, UnfitReason.GROUP)
            return self._build_filter_response(outcome.with_all_refused(UnfitReason.GROUP))
        self._listener.on_filter_answered(uid, names, fits=bool(outcome.passed))
        if not outcome.passed:
            response = self._build_filter_response(outcome)
            reasons = _count_reasons(outcome)
            nearest = find_nearest_reason(reasons)
            rejection = CachedRejection(frozenset(names), generation, response.body, reasons, nearest)
            self._note_refusal(scheduling_request, rejection.names, nearest)
            if key is not None and UnfitReason.NOT_SEEN.value not in outcome.unschedulable.values():
                self._rejections.put_rejection(key, rejection)
            return response
        self._answers.note_passed(uid)
        self._generations.pin_pod(uid, pod_request)
        if len(outcome.passed) > 1 and self._decides_in_filter(scheduling_request):
            outcome = FilterOutcome(
                self._rank_nodes(scheduling_request, pod_request, outcome.passed, 1),
                outcome.unschedulable,
                outcome.unresolvable,
            )
        if len(outcome.passed) == 1:
            self._reserve_node(scheduling_request, pod_request, outcome.passed[0])
        return self._build_filter_response(outcome)

    def _note_refusal(
        self, scheduling_request: SchedulingRequest, names: Collection[str], nearest: UnfitReason
    ) -> None:
        self._answers.note_refusal(scheduling_request.pod, names, nearest, scheduling_request.node_selector)

    def _decides_in_filter(self, scheduling_request: SchedulingRequest) -> bool:
        """Whether filter chooses the node for this pod."""
        decide = self._decision.get_deciding_verb(scheduling_request.scheduler_name)
        return decide == "filter" or (decide == "auto" and not scheduling_request.prefers_nodes)

    def _rank_nodes(
        self, scheduling_request: SchedulingRequest, pod_request: PodRequest, names: Sequence[str], count: int
    ) -> list[str]:
        """The best nodes, best first. The node of an unanswered Binding comes first: another bind there settles it."""
        uid = scheduling_request.pod.uid
        avoided = self._node_backoff.list_avoided_nodes(uid)
        ranked = self._engine.rank_nodes(set(names), pod_request, uid, count, avoided)
        if ranked:
            self._shadow_judge.note_decision(scheduling_request.pod, pod_request, names, ranked[0], avoided)
        reservation = self._ledger.places.get_reservation(uid)
        if reservation is None or reservation.node_name in avoided or reservation.node_name not in names:
            return ranked
        return [reservation.node_name, *(name for name in ranked if name != reservation.node_name)][:count]

    def _reserve_node(self, scheduling_request: SchedulingRequest, pod_request: PodRequest, node_name: str) -> None:
        """The scheduler is about to be told this node: remember the place until it binds the pod."""
        uid = scheduling_request.pod.uid
        evaluation = self._engine.evaluate_node(node_name, pod_request, uid)
        if isinstance(evaluation, ScoredCards):
            self._places.name_place(scheduling_request.pod, pod_request, node_name, evaluation)
        self._node_backoff.record_target(uid, node_name)

    def _build_filter_response(self, outcome: FilterOutcome) -> VerbResponse:
        self._count_rejections(_count_reasons(outcome))
        result = FilterResult(
            node_names=outcome.passed, failed=outcome.unschedulable, unresolvable=outcome.unresolvable
        )
        result_name = "ok" if outcome.passed else "no"
        return VerbResponse(encode_json(result), result_name, generation=self._generations.current)

    def _count_rejections(self, reasons: Mapping[str, int]) -> None:
        for reason, count in reasons.items():
            self._rejected[reason].inc(count)


def _count_reasons(outcome: FilterOutcome) -> Counter[str]:
    """How many nodes have each reason."""
    reasons = Counter(outcome.unschedulable.values())
    reasons.update(outcome.unresolvable.values())
    return reasons


def _filter_error(text: str) -> VerbResponse:
    return VerbResponse(encode_json(FilterResult(error=text)), "error")


def _bind_error(text: str) -> VerbResponse:
    return VerbResponse(encode_json(BindingResult(text)), "error")


def _plain_error(status: int, text: str) -> VerbResponse:
    return VerbResponse(encode_json({"error": text}), "error", status)
