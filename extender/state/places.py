"""The places of pods that are not bound yet, which count as used: held for a pod that may be bound late, or reserved by its bind.

    prioritize, or filter with one node --> held --bind--> reserved --the pod is seen bound--> its record counts
                                             |                 '--a definite refusal, or a fence--> free
                                             '--its next filter, a failed attempt, its end, or the longest time--> free

Between the choice of a node and the bind the scheduler waits for volumes and for the other pods of a group, for minutes, and
counts the pod on its node meanwhile. So does the ledger. That an attempt has failed is seen on the pod: from 1.35 on the
scheduler nominates the pod to the node while it waits, and ends the nomination; in every version it writes another
PodScheduled condition. It puts the pod back into its queue before it writes that, so the next attempt may begin before the news
of the last one is heard: such news ends no hold. A restart forgets held places, but for those of nominated pods.

A pod has one place. Only where the scheduler tries the pods of a group on several sets of nodes before it chooses one, a
place is held on each set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, TypeAlias, get_args

from extender.state.pods_by_node import PodsByNode
from vrampack.cards.allocation import Allocation
from vrampack.cards.holding import HoldState
from vrampack.cards.pod import Pod
from vrampack.cards.resource_version import is_later_version

HoldEnd = Literal["bound", "filtered", "failed", "gone", "expired"]
"""`filtered`: filter was called for it again; `failed`: its attempt, as the pod or its bind shows."""


@dataclass(frozen=True, slots=True)
class HeldPlace:
    """A place that was named to the scheduler for a pod that may be bound late."""

    pod: Pod
    """As the scheduler had it when it was told of the place."""
    node_name: str
    allocation: Allocation
    score: float
    made_at: float
    """Seconds of the ledger's clock."""
    is_confirmed: bool = False
    """Whether the API server has shown the pod nominated to the node."""
    may_hear_of_earlier: bool = False
    """Whether the API server may still have to show how an earlier attempt failed."""

    @property
    def state(self) -> HoldState:
        return "held"

    def is_given_up_by(self, pod: Pod) -> bool:
        """Whether this state of the unbound pod shows that the attempt has failed."""
        if not is_later_version(pod.resource_version, than=self.pod.resource_version):
            return False
        is_nominated_elsewhere = pod.nominated_node not in ("", self.node_name, self.pod.nominated_node)
        has_lost_nomination = self.is_confirmed and pod.nominated_node != self.node_name
        return is_nominated_elsewhere or has_lost_nomination or pod.failed_attempt != self.pod.failed_attempt

    def hear_of(self, pod: Pod) -> HeldPlace | None:
        """The place once the API server has shown the unbound pod; None if it is free by that."""
        heard = self
        is_confirmed = pod.nominated_node == self.node_name
        if is_confirmed and not is_later_version(self.pod.resource_version, than=pod.resource_version):
            heard = replace(self, is_confirmed=True)
        if pod.is_terminating:
            return None
        if not heard.is_given_up_by(pod):
            return heard
        if self.may_hear_of_earlier:
            return replace(self, pod=pod, is_confirmed=is_confirmed, may_hear_of_earlier=False)
        return None


@dataclass(frozen=True, slots=True)
class Reservation:
    """A place whose Binding is sent, and has not been seen on the watch yet."""

    pod: Pod
    node_name: str
    allocation: Allocation
    made_at: float
    """Seconds of the ledger's clock."""
    binding_version: str = ""
    """The resourceVersion of the pod that the Binding carries; empty before it is sent."""
    is_unconfirmed: bool = False
    """No answer came: the Binding may still land, as long as the pod has `binding_version`."""
    is_written: bool = False
    """The API server answered that it wrote the Binding: only news of the pod itself frees the place."""

    @property
    def state(self) -> HoldState:
        return "unconfirmed" if self.is_unconfirmed else "reserved"

    def may_land_on(self, pod: Pod) -> bool:
        """Whether the Binding could still bind the unbound pod in this state."""
        return not self.is_written and pod.resource_version == self.binding_version

    def is_fenced_by(self, pod: Pod) -> bool:
        """Whether this state of the pod proves that the Binding did not land and never will."""
        return (
            self.is_unconfirmed
            and not pod.node_name
            and is_later_version(pod.resource_version, than=self.binding_version)
        )

    def hear_of(self, pod: Pod) -> Reservation | None:
        """The place once the API server has shown the unbound pod; None if it is free by that."""
        return None if self.is_fenced_by(pod) else self

    def send_binding(self, version: str) -> Reservation:
        """A Binding for this version of the pod is about to be sent: one for an earlier version can no longer land."""
        if version == self.binding_version:
            return self
        return replace(self, binding_version=version, is_unconfirmed=False)

    def lose_answer(self) -> Reservation:
        return replace(self, is_unconfirmed=True)

    def note_written(self) -> Reservation:
        return replace(self, is_written=True, is_unconfirmed=False)


Place: TypeAlias = HeldPlace | Reservation


class Places:
    """Of a pod at most one on each node: one reservation, or held places."""

    def __init__(self) -> None:
        self._by_pod: dict[str, dict[str, Place]] = {}
        """By the pod's uid and the node's name, the oldest first."""
        self._pods_by_node = PodsByNode()
        self.holds_ended: dict[HoldEnd, int] = dict.fromkeys(get_args(HoldEnd), 0)
        """How many held places ended in each way, since the start."""

    def __iter__(self) -> Iterator[Place]:
        """Pod by pod."""
        return chain.from_iterable(places.values() for places in self._by_pod.values())

    def has_place(self, uid: str) -> bool:
        return uid in self._by_pod

    def list_places_of(self, uid: str) -> list[Place]:
        """The oldest first, here and in other lists of one pod's places."""
        return list(self._by_pod.get(uid, {}).values())

    def list_held_places_of(self, uid: str) -> list[HeldPlace]:
        return [place for place in self._by_pod.get(uid, {}).values() if isinstance(place, HeldPlace)]

    def get_reservation(self, uid: str) -> Reservation | None:
        places = self._by_pod.get(uid, {}).values()
        return next((place for place in places if isinstance(place, Reservation)), None)

    def get_reservation_on(self, uid: str, node_name: str) -> Reservation | None:
        """The pod's reservation if it is on this node."""
        reservation = self.get_reservation(uid)
        return reservation if reservation is not None and reservation.node_name == node_name else None

    def is_on_node(self, uid: str, node_name: str) -> bool:
        """Whether the pod has a place on this node."""
        return node_name in self._by_pod.get(uid, ())

    def needs_no_cards_of(self, uid: str, node_name: str) -> bool:
        """Whether a place on this node is reserved for the pod, or one is held for it anywhere."""
        return self.is_on_node(uid, node_name) or bool(self.list_held_places_of(uid))

    def list_reservations(self) -> list[Reservation]:
        return [place for place in self if isinstance(place, Reservation)]

    def list_held_places(self) -> list[HeldPlace]:
        return [place for place in self if isinstance(place, HeldPlace)]

    def list_alternatives(self) -> list[list[HeldPlace]]:
        """The places of each pod that has several, all of them held."""
        return [self.list_held_places_of(uid) for uid, places in self._by_pod.items() if len(places) > 1]

    def list_on_node(self, node_name: str) -> list[Place]:
        return [self._by_pod[uid][node_name] for uid in self._pods_by_node.list_pods(node_name)]

    def list_undecided_on(self, node_name: str) -> list[str]:
        """Pods with one of several held places here: no scheduler has them on this node before it has chosen a set of nodes."""
        return [
            uid
            for uid in self._pods_by_node.list_pods(node_name)
            if len(held := self._by_pod[uid]) > 1
            and not (isinstance(place := held[node_name], HeldPlace) and place.is_confirmed)
        ]

    def put_place(self, place: Place) -> None:
        """Add it, instead of the one that the pod has on this node; a reservation is the only place of its pod."""
        self._by_pod.setdefault(place.pod.uid, {})[place.node_name] = place
        self._pods_by_node.add_pod(place.node_name, place.pod.uid)

    def end_place(self, place: Place, how: HoldEnd) -> None:
        """Remove one of the places."""
        uid = place.pod.uid
        del self._by_pod[uid][place.node_name]
        if not self._by_pod[uid]:
            del self._by_pod[uid]
        self._pods_by_node.remove_pod(place.node_name, uid)
        if isinstance(place, HeldPlace):
            self.holds_ended[how] += 1

    def hear_of(self, pod: Pod) -> list[Place]:
        """The API server shows the unbound pod. Returns its places that are free by that."""
        freed: list[Place] = []
        for place in self.list_places_of(pod.uid):
            heard = place.hear_of(pod)
            if heard is None:
                freed.append(place)
            else:
                self.put_place(heard)
        return freed
