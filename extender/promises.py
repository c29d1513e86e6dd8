"""Places that were named to the scheduler and not bound yet: they lower the rank of their cards for other pods.

    filter or prioritize names a place --make--> promised --its bind, its next filter, its end, or 2 s--> forgotten

Filter for the next pod comes before bind for this one, so without promises both are sent to the same card and one bind
is refused. A promise refuses nobody and is no part of the ledger: whoever fits nowhere else may still have the place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cards.pod import Pod
from cards.request import Request
from policies.layout import Laid

PROMISE_SECONDS = 2.0
"""A bind follows within milliseconds; one that waits longer for its volumes or its gang decides anew."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A place named for one pod."""

    uid: str
    request: Request
    laid: Laid
    made_at: float
    """Seconds of the clock."""
    is_known: bool
    """The ledger had the pod already when the promise was made."""


class Promises:
    """At most one for each pod. `policies.engine.Promised` for ranking."""

    def __init__(self, *, pod_of: Callable[[str], Pod | None], clock: Callable[[], float]) -> None:
        self._pod_of = pod_of
        self._clock = clock
        self._promises: dict[str, Promise] = {}
        """The oldest first."""

    def make(self, uid: str, request: Request, laid: Laid) -> None:
        """Remember the place that was just named for the pod."""
        self._promises.pop(uid, None)
        self._promises[uid] = Promise(uid, request, laid, self._clock(), self._pod_of(uid) is not None)

    def end(self, uid: str) -> None:
        """The pod is bound, or asked about again."""
        self._promises.pop(uid, None)

    def own(self, uid: str) -> Laid | None:
        """The place that was promised to this pod."""
        promise = self._promises.get(uid)
        return promise.laid if promise is not None and self._is_live(promise) else None

    def of_others(self, uid: str) -> dict[str, list[tuple[Sequence[int], Request]]]:
        """What is promised to other pods, by node: cards by index, and the request."""
        if not self._promises:
            return {}
        found: dict[str, list[tuple[Sequence[int], Request]]] = {}
        for promise in self.live():
            if promise.uid != uid:
                found.setdefault(promise.laid.node_name, []).append((promise.laid.cards, promise.request))
        return found

    def live(self) -> Iterator[Promise]:
        """All that hold now, the oldest first; the others are forgotten."""
        for promise in list(self._promises.values()):
            if self._is_live(promise):
                yield promise
            else:
                del self._promises[promise.uid]

    def age_seconds(self, promise: Promise) -> float:
        return self._clock() - promise.made_at

    def _is_live(self, promise: Promise) -> bool:
        if self.age_seconds(promise) >= PROMISE_SECONDS:
            return False
        pod = self._pod_of(promise.uid)
        if pod is None:
            return not promise.is_known
        return not (pod.node_name or pod.is_leaving)
