"""Places whose Binding was sent and has not been seen on the watch yet: at most one for each pod."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from extender.state.pods_by_node import PodsByNode
from vrampack.cards.allocation import Allocation
from vrampack.cards.holding import HoldState
from vrampack.cards.pod import Pod
from vrampack.cards.resource_version import is_later_version


@dataclass(frozen=True, slots=True)
class Reservation:
    """One such place."""

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


class Reservations:
    """Reservations by pod uid, and which pods have one on each node."""

    def __init__(self) -> None:
        self._by_pod: dict[str, Reservation] = {}
        self._pods_by_node = PodsByNode()

    def __iter__(self) -> Iterator[Reservation]:
        return iter(self._by_pod.values())

    def get_reservation(self, uid: str) -> Reservation | None:
        return self._by_pod.get(uid)

    def get_on_node(self, uid: str, node_name: str) -> Reservation | None:
        """The pod's reservation if it is on this node."""
        reservation = self._by_pod.get(uid)
        return reservation if reservation is not None and reservation.node_name == node_name else None

    def put_reservation(self, reservation: Reservation) -> None:
        """Add it, or replace the pod's reservation on the same node. Raises `ValueError` if the pod has one elsewhere."""
        known = self._by_pod.get(reservation.pod.uid)
        if known is not None and known.node_name != reservation.node_name:
            raise ValueError(f"pod {reservation.pod} has a place on node {known.node_name} already")
        self._by_pod[reservation.pod.uid] = reservation
        self._pods_by_node.add_pod(reservation.node_name, reservation.pod.uid)

    def record_binding(self, uid: str, node_name: str, version: str) -> bool:
        """Whether the place was unconfirmed and is no longer."""
        known = self.get_on_node(uid, node_name)
        if known is None or known.binding_version == version:
            return False
        self._by_pod[uid] = replace(known, binding_version=version, is_unconfirmed=False)
        return known.is_unconfirmed

    def mark_unconfirmed(self, uid: str, node_name: str) -> bool:
        """Whether the pod has a reservation there."""
        known = self.get_on_node(uid, node_name)
        if known is not None:
            self._by_pod[uid] = replace(known, is_unconfirmed=True)
        return known is not None

    def mark_written(self, uid: str, node_name: str) -> bool:
        """Whether the place was unconfirmed and is no longer."""
        known = self.get_on_node(uid, node_name)
        if known is None:
            return False
        self._by_pod[uid] = replace(known, is_written=True, is_unconfirmed=False)
        return known.is_unconfirmed

    def remove_reservation(self, uid: str) -> str:
        """Remove the pod's reservation. Returns the node it was on; empty when it had none."""
        reservation = self._by_pod.pop(uid, None)
        if reservation is None:
            return ""
        self._pods_by_node.remove_pod(reservation.node_name, uid)
        return reservation.node_name

    def list_on_node(self, node_name: str) -> list[Reservation]:
        return [self._by_pod[uid] for uid in self._pods_by_node.list_pods(node_name)]
