"""The places that the scheduler was told of and has not bound yet: held for pods that it may bind late, softly reserved for others.

kube-scheduler binds most pods within milliseconds. One that waits for a volume, a resource claim or the other pods of its
group is bound minutes later, and until then the scheduler counts it on its node; so its place is held in the ledger.
"""

from __future__ import annotations

import asyncio
from itertools import takewhile

from extender.settings import HoldSettings
from extender.state.held_places import HoldEnd
from extender.state.ledger import Ledger
from extender.state.soft_reservations import SoftReservations
from policies.engine.engine import Engine
from policies.policy import ScoredCards
from policies.trial_placement import Placement
from vrampack.cards.allocation import allocate_cards
from vrampack.cards.pod import Pod
from vrampack.cards.request import PodRequest

EXPIRY_INTERVAL_SECONDS = 1.0


class NamedPlaces:
    """At most one for each pod."""

    def __init__(self, ledger: Ledger, soft_reservations: SoftReservations, settings: HoldSettings) -> None:
        self._ledger = ledger
        self._soft_reservations = soft_reservations
        self._schedulers = frozenset(settings.schedulers)
        self._max_seconds = settings.max_seconds

    async def run(self) -> None:
        """End the holds that have lasted too long, once a second, until cancelled."""
        while True:
            await asyncio.sleep(EXPIRY_INTERVAL_SECONDS)
            self.end_old_holds()

    def end_old_holds(self) -> None:
        is_old = takewhile(lambda held: self._ledger.get_age_seconds(held) >= self._max_seconds, self._ledger.held)
        for held in list(is_old):
            self._ledger.release_held_place(held.pod.uid, "expired")

    def restore_holds(self, engine: Engine) -> None:
        """Hold the places of pods that a scheduler has nominated, as it does from 1.35 on while it waits, after a restart."""
        for pod in self._ledger.list_unbound_pods():
            if pod.nominated_node and pod.request is not None and self._may_bind_late(pod):
                scored = engine.evaluate_node(pod.nominated_node, pod.request, pod.uid)
                if isinstance(scored, ScoredCards):
                    self.name_place(pod, pod.request, pod.nominated_node, scored)

    def name_place(self, pod: Pod, pod_request: PodRequest, node_name: str, scored: ScoredCards) -> None:
        """The scheduler is about to be told of this place."""
        node = self._ledger.get_node_for_pod(node_name, pod.uid)
        if node is not None and self._may_bind_late(pod):
            self._soft_reservations.release_pod(pod.uid)
            allocation = allocate_cards(node, scored.cards, pod_request)
            self._ledger.hold_place(pod, node_name, allocation, scored.score)
            return
        indices = tuple(sorted(card.index for card in scored.cards))
        placement = Placement(node_name, indices, scored.score)
        self._soft_reservations.reserve_placement(pod.uid, pod_request.card_request, placement)

    def release_pod(self, uid: str, how: HoldEnd) -> None:
        """The pod is bound, or the scheduler's attempt has ended."""
        self._soft_reservations.release_pod(uid)
        self._ledger.release_held_place(uid, how)

    def _may_bind_late(self, pod: Pod) -> bool:
        return pod.may_bind_late or pod.scheduler_name in self._schedulers
