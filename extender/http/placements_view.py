"""Reservations, holds, soft reservations and nominated placements, for the inspect routes.

They explain why a card has less room than its pods leave, and let an operator check that none of them stays for ever.
"""

from __future__ import annotations

from collections.abc import Iterable

from extender.state.ledger import Ledger
from extender.state.nominator import Nominator
from extender.state.soft_reservations import SoftReservations
from vrampack.cards.pod import Pod

PlacementJson = dict[str, object]


class PlacementsView:
    """The places of all pods that the API server does not show as bound yet."""

    def __init__(self, ledger: Ledger, soft_reservations: SoftReservations, nominator: Nominator) -> None:
        self._ledger = ledger
        self._soft_reservations = soft_reservations
        self._nominator = nominator

    def build_json(self) -> dict[str, list[PlacementJson]]:
        """As JSON shows them; ages are in seconds."""
        return {
            "reservations": [
                self._build_placement_json(each.pod.uid, each.node_name, each.allocation.card_indices, each.pod)
                | {"ageSeconds": self._ledger.get_age_seconds(each), "unconfirmed": each.is_unconfirmed}
                for each in self._ledger.places.list_reservations()
            ],
            "holds": [
                self._build_placement_json(each.pod.uid, each.node_name, each.allocation.card_indices, each.pod)
                | {"ageSeconds": self._ledger.get_age_seconds(each), "confirmed": each.is_confirmed}
                for each in self._ledger.places.list_held_places()
            ],
            "promises": [
                self._build_placement_json(
                    each.uid, each.placement.node_name, each.placement.cards, self._ledger.get_pod(each.uid)
                )
                | {"ageSeconds": self._soft_reservations.get_age_seconds(each)}
                for each in self._soft_reservations.list_active()
            ],
            "nominations": [
                self._build_placement_json(each.pod.uid, each.placement.node_name, each.placement.cards, each.pod)
                for each in self._nominator.list_placements()
            ],
        }

    @staticmethod
    def _build_placement_json(uid: str, node_name: str, cards: Iterable[int], pod: Pod | None) -> PlacementJson:
        known = {"namespace": pod.namespace, "name": pod.name} if pod is not None else {}
        return {"uid": uid, **known, "node": node_name, "cards": sorted(cards)}
