"""Filter, prioritize and bind: from a body to an answer. Nothing here changes the ledger but bind.

A no is an answer, with a reason for each node; `Error` and HTTP errors are for our own failures. Which verb names the
node is set for each scheduler: prioritize by the highest score, or filter by letting only that node pass, so that the
scheduler skips its scoring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from extender.attempts import Attempts
from extender.binding import Binder
from extender.metrics import Metrics
from extender.noes import No, Noes
from extender.promises import Promises
from extender.settings import Deciding
from extender.wire import (
    MAX_SCORE,
    BindingResult,
    FilterResult,
    HostPriority,
    WireError,
    encode,
    read_binding,
)
from extender.wire_args import ArgsReader, Asking
from policies.engine import Engine
from policies.layout import Laid
from policies.policy import Ranked
from policies.tables import Sorted
from vrampack.cards.fit import Reason
from vrampack.cards.request import Ask

SCORES = (MAX_SCORE, 5, 4, 3, 2, 1)
"""Best node first, all others 0: the best must win over whatever else the scheduler adds up."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer, ready to send. `result` is for the metrics: ok, no, error."""

    body: bytes
    result: str = "ok"
    status: int = 200


class FilterListener(Protocol):
    """Who wants to know what filter was asked and answered."""

    def called(self) -> None:
        """A scheduler asked about some pod, ours or not."""

    def filtered(self, uid: str, names: Collection[str], *, fits: bool) -> None:
        """Whether any of these nodes can take this pod of ours."""


class Room(Protocol):
    """What the verbs need of the ledger."""

    @property
    def room_generation(self) -> int:
        """Rises with every change by which a node gains room."""
        ...


class Verbs:
    """The verbs over one ledger."""

    def __init__(  # noqa: PLR0913 - what an answer is made of
        self,
        *,
        engine: Engine,
        room: Room,
        binder: Binder,
        promises: Promises,
        attempts: Attempts,
        listener: FilterListener,
        metrics: Metrics,
        problem: Callable[[], str],
        resource: str,
        deciding: Deciding,
    ) -> None:
        self._engine = engine
        self._room = room
        self._binder = binder
        self._promises = promises
        self._attempts = attempts
        self._listener = listener
        self._problem = problem
        self._args = ArgsReader(resource)
        self._deciding = deciding
        self._noes = Noes()
        self._rejected = {reason.value: metrics.rejected_nodes.labels(reason.value) for reason in Reason}
        self._binds = metrics.binds

    def filter(self, body: bytes) -> Answer:
        """Which of the named nodes can take the pod now; always HTTP 200.

        A pod that runs already is asked about when it is resized in place: its memory is held where it is, and cannot
        be resized.
        """
        problem = self._problem()
        if problem:
            return _filter_error(f"not ready: {problem}")
        try:
            asking, names = self._args.read(body)
        except WireError as error:
            return _filter_error(str(error))
        self._listener.called()
        pod = asking.pod
        if pod.ask is None:
            return Answer(encode(FilterResult(node_names=list(dict.fromkeys(names)))))
        if pod.node_name:
            found = self._engine.verdicts(names, pod.ask, pod.uid)
            return self._answer(found.but_passing(pod.node_name, names) if pod.node_name in names else found)
        return self._filter_waiting(asking, pod.ask, names)

    def prioritize(self, body: bytes) -> Answer:
        """Scores of the best nodes, best first. There is no place for an error: 400 malformed, 503 not ready.

        A node that is not in the answer scores 0, as the scheduler adds it up (`prioritizeNodes` in schedule_one.go of
        kube-scheduler): a thousand zeros would only be written here and read there.
        """
        problem = self._problem()
        if problem:
            return _plain_error(503, f"not ready: {problem}")
        try:
            asking, names = self._args.read(body)
        except WireError as error:
            return _plain_error(400, str(error))
        pod = asking.pod
        if pod.ask is None:
            return Answer(b"[]")
        best = self._best(asking, pod.ask, names, len(SCORES))
        if best and not pod.node_name:
            self._name(asking, pod.ask, best[0])
        return Answer(encode([HostPriority(*each) for each in zip(best, SCORES, strict=False)]))

    async def bind(self, body: bytes) -> Answer:
        """Bind one pod; always HTTP 200. `Error` is empty only when the API server shows the pod bound."""
        problem = self._problem()
        if problem:
            self._binds.labels("unready").inc()
            return _bind_error(f"not ready: {problem}; nothing was bound")
        try:
            args = read_binding(body)
        except WireError as error:
            self._binds.labels("malformed").inc()
            return _bind_error(f"{error}; nothing was bound")
        outcome = await self._binder.bind(args)
        if not outcome.error:
            self._attempts.bound(args.pod_uid)
        return Answer(encode(BindingResult(outcome.error)), "error" if outcome.error else "ok")

    def _filter_waiting(self, asking: Asking, ask: Ask, names: Sequence[str]) -> Answer:
        uid = asking.pod.uid
        self._attempts.asked(uid)
        self._promises.end(uid)
        is_like_others = self._engine.is_like_others(uid)
        room_generation = self._room.room_generation
        no = self._noes.find(ask.request, names, room_generation) if is_like_others else None
        if no is not None:
            self._listener.filtered(uid, names, fits=False)
            self._count(no.reasons)
            return Answer(no.body, "no")
        found = self._engine.verdicts(names, ask, uid)
        self._listener.filtered(uid, names, fits=bool(found.passed))
        if not found.passed:
            answer = self._answer(found)
            if is_like_others and Reason.NOT_SEEN.value not in found.later.values():
                self._noes.keep(ask.request, No(frozenset(names), room_generation, answer.body, _reasons(found)))
            return answer
        if len(found.passed) > 1 and self._decides(asking):
            found = Sorted(self._best(asking, ask, found.passed, 1), found.later, found.never)
        if len(found.passed) == 1:
            self._name(asking, ask, found.passed[0])
        return self._answer(found)

    def _decides(self, asking: Asking) -> bool:
        """Whether filter names the node."""
        decide = self._deciding.of(asking.scheduler_name)
        return decide == "filter" or (decide == "auto" and not asking.prefers_nodes)

    def _best(self, asking: Asking, ask: Ask, names: Sequence[str], count: int) -> list[str]:
        uid = asking.pod.uid
        return self._engine.best(names, ask, uid, count, self._attempts.avoided(uid))

    def _name(self, asking: Asking, ask: Ask, node_name: str) -> None:
        """The scheduler is sent to this node: remember the place until it binds."""
        uid = asking.pod.uid
        judged = self._engine.judge(node_name, ask, uid)
        if isinstance(judged, Ranked):
            indices = tuple(sorted(card.index for card in judged.cards))
            self._promises.make(uid, ask.request, Laid(node_name, indices, judged.score))
        self._attempts.named(uid, node_name)

    def _answer(self, found: Sorted) -> Answer:
        self._count(_reasons(found))
        result = FilterResult(node_names=found.passed, failed=found.later, unresolvable=found.never)
        return Answer(encode(result), "ok" if found.passed else "no")

    def _count(self, reasons: Mapping[str, int]) -> None:
        for reason, count in reasons.items():
            self._rejected[reason].inc(count)


def _reasons(found: Sorted) -> Counter[str]:
    """How many nodes each reason keeps out."""
    reasons = Counter(found.later.values())
    reasons.update(found.never.values())
    return reasons


def _filter_error(text: str) -> Answer:
    return Answer(encode(FilterResult(error=text)), "error")


def _bind_error(text: str) -> Answer:
    return Answer(encode(BindingResult(text)), "error")


def _plain_error(status: int, text: str) -> Answer:
    return Answer(encode({"error": text}), "error", status)
