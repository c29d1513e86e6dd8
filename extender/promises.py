"""Places that were named to the scheduler and not bound yet: they lower the rank of their cards for other pods.

    filter or prioritize names a place --make--> promised --its bind, its next filter, its end, or 2 s--> forgotten

Filter for the next pod comes before bind for this one, so without promises both are sent to the same card and one bind
is refused. A promise refuses nobody and is no part of the ledger: whoever fits nowhere else may still have the place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cards.pod import Pod
from cards.request import Request
from policies.engine import Place
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
        self._places: dict[str, tuple[Place, ...]] = {}
        """By node; another tuple whenever one of them changes."""

    def make(self, uid: str, request: Request, laid: Laid) -> None:
        """Remember the place that was just named for the pod."""
        self.end(uid)
        self._promises[uid] = Promise(uid, request, laid, self._clock(), self._pod_of(uid) is not None)
        self._places[laid.node_name] = (*self._places.get(laid.node_name, ()), (laid.cards, request))

    def end(self, uid: str) -> None:
        """The pod is bound, or asked about again."""
        promise = self._promises.pop(uid, None)
        if promise is None:
            return
        name, places = promise.laid.node_name, list(self._places[promise.laid.node_name])
        places.remove((promise.laid.cards, promise.request))
        if places:
            self._places[name] = tuple(places)
        else:
            del self._places[name]

    def own(self, uid: str) -> Laid | None:
        """The place that was promised to this pod."""
        promise = self._promises.get(uid)
        return promise.laid if promise is not None and self._is_live(promise) else None

    def of_others(self, uid: str) -> Mapping[str, Sequence[Place]]:
        """What is promised to other pods, by node: cards by index, and the request."""
        self._forget_ended()
        own = self._promises.get(uid)
        if own is None:
            return self._places
        node_name, places = own.laid.node_name, list(self._places[own.laid.node_name])
        places.remove((own.laid.cards, own.request))
        others = {name: each for name, each in self._places.items() if name != node_name}
        return {**others, node_name: tuple(places)} if places else others

    def live(self) -> list[Promise]:
        """All that hold now, the oldest first."""
        self._forget_ended()
        return list(self._promises.values())

    def _forget_ended(self) -> None:
        for promise in [each for each in self._promises.values() if not self._is_live(each)]:
            self.end(promise.uid)

    def age_seconds(self, promise: Promise) -> float:
        return self._clock() - promise.made_at

    def _is_live(self, promise: Promise) -> bool:
        if self.age_seconds(promise) >= PROMISE_SECONDS:
            return False
        pod = self._pod_of(promise.uid)
        if pod is None:
            return not promise.is_known
        return not (pod.node_name or pod.is_leaving)
