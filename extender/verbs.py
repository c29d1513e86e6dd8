"""Filter, prioritize and bind: from a body to an answer. Nothing here changes the ledger but bind.

A no is an answer, with a reason for each node; `Error` and HTTP errors are for our own failures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from extender.binding import Binder
from extender.metrics import Metrics
from extender.wire import (
    MAX_SCORE,
    BindingResult,
    FilterResult,
    HostPriority,
    WireError,
    encode,
    read_args,
    read_binding,
)
from policies.engine import Engine

SCORES = (MAX_SCORE, 5, 4, 3, 2, 1)
"""Best node first, then 0 for all others: the best must win over whatever else the scheduler adds up."""


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


class Verbs:
    """The verbs over one ledger."""

    def __init__(
        self,
        *,
        engine: Engine,
        binder: Binder,
        listener: FilterListener,
        metrics: Metrics,
        problem: Callable[[], str],
        resource: str,
    ) -> None:
        self._engine = engine
        self._binder = binder
        self._listener = listener
        self._problem = problem
        self._resource = resource
        self._rejected = metrics.rejected_nodes
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
            pod, names = read_args(body, self._resource)
        except WireError as error:
            return _filter_error(str(error))
        self._listener.called()
        if pod.ask is None:
            return Answer(encode(FilterResult(node_names=list(dict.fromkeys(names)))))
        found = self._engine.verdicts(names, pod.ask, pod.uid)
        if pod.node_name and pod.node_name in names:
            found = found.but_passing(pod.node_name, names)
        for reason, count in Counter((*found.later.values(), *found.never.values())).items():
            self._rejected.labels(reason).inc(count)
        if not pod.node_name:
            self._listener.filtered(pod.uid, names, fits=bool(found.passed))
        result = FilterResult(node_names=found.passed, failed=found.later, unresolvable=found.never)
        return Answer(encode(result), "ok" if found.passed else "no")

    def prioritize(self, body: bytes) -> Answer:
        """Scores for the named nodes in their order, each once. There is no place for an error: 400 malformed, 503 not ready."""
        problem = self._problem()
        if problem:
            return _plain_error(503, f"not ready: {problem}")
        try:
            pod, names = read_args(body, self._resource)
        except WireError as error:
            return _plain_error(400, str(error))
        scores = dict.fromkeys(names, 0)
        if pod.ask is not None:
            best = self._engine.best(names, pod.ask, pod.uid, len(SCORES))
            scores.update(zip(best, SCORES, strict=False))
        return Answer(encode([HostPriority(name, score) for name, score in scores.items()]))

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
        return Answer(encode(BindingResult(outcome.error)), "error" if outcome.error else "ok")


def _filter_error(text: str) -> Answer:
    return Answer(encode(FilterResult(error=text)), "error")


def _bind_error(text: str) -> Answer:
    return Answer(encode(BindingResult(text)), "error")


def _plain_error(status: int, text: str) -> Answer:
    return Answer(encode({"error": text}), "error", status)
