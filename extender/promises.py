"""Places that were named to the scheduler and not bound yet: they lower the rank of their cards for other pods.

    filter or prioritize names a place --make--> promised --its bind, its next filter, its end, or 2 s--> forgotten

Filter for the next pod comes before bind for this one, so without promises both are sent to the same card and one bind
is refused. A promise refuses nobody and is no part of the ledger: whoever fits nowhere else may still have the place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from policies.beside import Place
from policies.layout import Laid
from vrampack.cards.request import Request

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


class Promises:
    """At most one for each pod. `policies.engine.Promised` for ranking."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._promises: dict[str, Promise] = {}
        """The oldest first."""
        self._places: dict[str, tuple[Place, ...]] = {}
        """By node; another tuple whenever one of them changes."""

    def make(self, uid: str, request: Request, laid: Laid) -> None:
        """Remember the place that was just named for the pod."""
        self.end(uid)
        self._promises[uid] = Promise(uid, request, laid, self._clock())
        self._places[laid.node_name] = (*self._places.get(laid.node_name, ()), (laid.cards, request))

    def end(self, uid: str) -> None:
        """The pod is bound, leaving or gone, or asked about again."""
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
        self._forget_old()
        promise = self._promises.get(uid)
        return promise.laid if promise is not None else None

    def of_others(self, uid: str) -> Mapping[str, Sequence[Place]]:
        """What is promised to other pods, by node: cards by index, and the request."""
        self._forget_old()
        own = self._promises.get(uid)
        if own is None:
            return self._places
        node_name, places = own.laid.node_name, list(self._places[own.laid.node_name])
        places.remove((own.laid.cards, own.request))
        others = {name: each for name, each in self._places.items() if name != node_name}
        return {**others, node_name: tuple(places)} if places else others

    def live(self) -> list[Promise]:
        """All that hold now, the oldest first."""
        self._forget_old()
        return list(self._promises.values())

    def age_seconds(self, promise: Promise) -> float:
        return self._clock() - promise.made_at

    def _forget_old(self) -> None:
        while self._promises:
            oldest = next(iter(self._promises.values()))
            if self.age_seconds(oldest) < PROMISE_SECONDS:
                return
            self.end(oldest.uid)
