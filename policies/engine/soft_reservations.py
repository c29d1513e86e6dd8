"""What the engine needs from soft reservations: places named to the scheduler for pods that are not bound yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from policies.engine.reserved_nodes import ReservedCards
from policies.trial_placement import Placement


class SoftReservationView(Protocol):
    """Places named to the scheduler for pods that are not bound yet."""

    def list_reserved_for_others(self, uid: str) -> Mapping[str, Sequence[ReservedCards]]:
        """Soft reservations of other pods, by node: the same object until they change."""
        ...

    def get_placement(self, uid: str) -> Placement | None:
        """The soft reservation of the pod itself."""
        ...


class NoSoftReservations:
    """For callers that only need to know what fits."""

    def list_reserved_for_others(self, uid: str) -> Mapping[str, Sequence[ReservedCards]]:  # noqa: ARG002 - of the protocol
        return {}

    def get_placement(self, uid: str) -> Placement | None:  # noqa: ARG002 - of the protocol
        return None
