"""What is held or meant for pods that the API server does not show bound yet, for the inspect routes.

A stranger who reads the ledger sees here why a card is fuller than its pods, and an auditor that nothing stays so.
"""

from __future__ import annotations

from collections.abc import Iterable

from extender.ledger import Ledger
from extender.nominations import Nominations
from extender.promises import Promises
from vrampack.cards.pod import Pod

Shown = dict[str, object]


class Places:
    """Reservations, promises and what is kept for nominated pods."""

    def __init__(self, ledger: Ledger, promises: Promises, nominations: Nominations) -> None:
        self._ledger = ledger
        self._promises = promises
        self._nominations = nominations

    def shown(self) -> dict[str, list[Shown]]:
        """All of them, as JSON shows them; ages are seconds."""
        return {
            "reservations": [
                self._place(each.pod.uid, each.node_name, (card.index for card in each.allocation.cards), each.pod)
                | {"ageSeconds": self._ledger.age_seconds(each), "unsettled": each.is_unsettled}
                for each in self._ledger.reservations()
            ],
            "promises": [
                self._place(each.uid, each.laid.node_name, each.laid.cards, self._ledger.pod(each.uid))
                | {"ageSeconds": self._promises.age_seconds(each)}
                for each in self._promises.live()
            ],
            "nominations": [
                self._place(each.pod.uid, each.laid.node_name, each.laid.cards, each.pod)
                for each in self._nominations.all_kept()
            ],
        }

    @staticmethod
    def _place(uid: str, node_name: str, cards: Iterable[int], pod: Pod | None) -> Shown:
        known = {"namespace": pod.namespace, "name": pod.name} if pod is not None else {}
        return {"uid": uid, **known, "node": node_name, "cards": sorted(cards)}
