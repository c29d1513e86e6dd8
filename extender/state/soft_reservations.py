"""Places named to the scheduler and not bound yet: they lower the rank of their cards for other pods.

    filter or prioritize names a place --> reserved --its bind, its next filter, its end, or 2 s--> released

Filter for the next pod comes before bind for this one, so without soft reservations both pods are sent to the same card and
one bind is refused. A soft reservation rejects no pod and is not in the ledger: a pod that fits nowhere else may still
take the place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from extender.state.places import HeldPlace
from policies.engine.change_log import NodeChangeLog
from policies.trial_placement import HeldCards, Placement
from vrampack.cards.request import CardRequest

SOFT_RESERVATION_SECONDS = 2.0
"""A bind follows within milliseconds. Pods that may wait longer have a held place instead."""


@dataclass(frozen=True, slots=True)
class SoftReservation:
    """A place named for one pod."""

    uid: str
    request: CardRequest
    placement: Placement
    made_at: float
    """Seconds of the clock."""


class SoftReservations:
    """At most one for each pod. A `SoftReservationView` for the engine."""

    def __init__(self, clock: Callable[[], float], list_held_places_of: Callable[[str], Sequence[HeldPlace]]) -> None:
        self._clock = clock
        self._list_held_places_of = list_held_places_of
        self._reservations: dict[str, SoftReservation] = {}
        """The oldest first."""
        self._cards_by_node: dict[str, tuple[HeldCards, ...]] = {}
        """By node; each change to a node builds a new tuple."""
        self._changes = NodeChangeLog()

    @property
    def generation(self) -> int:
        self._expire_old()
        return self._changes.generation

    def list_nodes_changed_since(self, generation: int) -> list[str] | None:
        return self._changes.list_nodes_changed_since(generation)

    def reserve_placement(self, uid: str, request: CardRequest, placement: Placement) -> None:
        """Remember the place that was just named for the pod."""
        self.release_pod(uid)
        self._reservations[uid] = SoftReservation(uid, request, placement, self._clock())
        self._cards_by_node[placement.node_name] = (
            *self._cards_by_node.get(placement.node_name, ()),
            (placement.cards, request),
        )
        self._changes.record_change(placement.node_name)

    def release_pod(self, uid: str) -> None:
        """The pod is bound, terminating or gone, or filter is called for it again."""
        reservation = self._reservations.pop(uid, None)
        if reservation is None:
            return
        name, reserved = reservation.placement.node_name, list(self._cards_by_node[reservation.placement.node_name])
        reserved.remove((reservation.placement.cards, reservation.request))
        if reserved:
            self._cards_by_node[name] = tuple(reserved)
        else:
            del self._cards_by_node[name]
            self._changes.forget_removed_nodes(self._cards_by_node)
        self._changes.record_change(name)

    def list_placements(self, uid: str) -> list[Placement]:
        """The places that are held for this pod, or the one that is reserved."""
        held = self._list_held_places_of(uid)
        if held:
            return [Placement(each.node_name, tuple(each.allocation.card_indices), each.score) for each in held]
        self._expire_old()
        reservation = self._reservations.get(uid)
        return [] if reservation is None else [reservation.placement]

    def list_reserved_nodes(self) -> Collection[str]:
        self._expire_old()
        return self._cards_by_node.keys()

    def list_reserved_cards(self, name: str, uid: str | None = None) -> Sequence[HeldCards]:
        """What is reserved on this node for all pods but `uid`: cards by index, and the request."""
        self._expire_old()
        reserved = self._cards_by_node.get(name, ())
        own = None if uid is None else self._reservations.get(uid)
        if own is None or own.placement.node_name != name:
            return reserved
        others = list(reserved)
        others.remove((own.placement.cards, own.request))
        return tuple(others)

    def list_active(self) -> list[SoftReservation]:
        """All that have not expired, the oldest first."""
        self._expire_old()
        return list(self._reservations.values())

    def get_age_seconds(self, reservation: SoftReservation) -> float:
        return self._clock() - reservation.made_at

    def _expire_old(self) -> None:
        while self._reservations:
            oldest = next(iter(self._reservations.values()))
            if self.get_age_seconds(oldest) < SOFT_RESERVATION_SECONDS:
                return
            self.release_pod(oldest.uid)
