"""The ledger as one pod finds it: cards kept for a nominated pod count as used for pods of lower or equal priority.

The scheduler evicted others for the nominated pod and protects the sum of its node meanwhile; only we know which card that
is. The kept cards are computed from the ledger for every call; an answer of preempt counts as a nomination until the API
shows the real one (`PendingPreemptions`). A nominee's cards are found on the node as it will be when the terminating pods,
and the victims named for it, are gone; the most important nominee comes first, so that all kept cards fit together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from extender.state.ledger import Ledger
from extender.state.pending_preemptions import PendingPreemptions
from policies.evaluate import evaluate_node
from policies.policy import ScoredCards
from policies.trial_placement import Placement, hold_on_node
from vrampack.cards.holding import Hold
from vrampack.cards.node import Node
from vrampack.cards.pod import Pod
from vrampack.cards.request import CardRequest


@dataclass(frozen=True, slots=True)
class NominatedPlacement:
    """Cards kept for a nominated pod."""

    pod: Pod
    request: CardRequest
    placement: Placement


class Nominator:
    """A `LedgerView` for the engine."""

    def __init__(self, ledger: Ledger, pending_preemptions: PendingPreemptions) -> None:
        self._ledger = ledger
        self._pending_preemptions = pending_preemptions

    @property
    def generation(self) -> int:
        return self._ledger.generation

    def list_nodes_changed_since(self, generation: int) -> list[str] | None:
        return self._ledger.list_nodes_changed_since(generation)

    def list_node_names(self) -> Collection[str]:
        return self._ledger.list_node_names()

    def get_node(self, name: str) -> Node | None:
        return self._ledger.get_node(name)

    def get_node_for_pod(self, name: str, uid: str) -> Node | None:
        """The node without the pod's own reservation, and with the cards that are kept from it counted as used."""
        node = self._ledger.get_node_for_pod(name, uid)
        if node is None:
            return None
        for nominated in self._list_placements_against(name, uid, self._get_priority(uid)):
            node = hold_on_node(node, nominated.placement.cards, nominated.request)
        return node

    def list_pod_specific_nodes(self, uid: str) -> list[str]:
        """The nodes that look different to this pod than to other pods."""
        reservation = self._ledger.get_pod_reservation(uid)
        names = [] if reservation is None else [reservation.node_name]
        priority = self._get_priority(uid)
        preemptors = self._pending_preemptions.list_pods_by_node()
        for name in self._ledger.list_nominated_nodes() | preemptors.keys():
            nominees = self._list_nominees(name, preemptors.get(name, ()))
            if name not in names and any(_has_precedence(pod, uid, priority) for pod in nominees):
                names.append(name)
        return names

    def is_nominee(self, pod: Pod) -> bool:
        """Whether other pods were evicted for it, or may be."""
        return bool(pod.nominated_node) or pod.uid in self._pending_preemptions

    def list_placements(self) -> Iterator[NominatedPlacement]:
        """All that is kept, by node."""
        preemptors = self._pending_preemptions.list_pods_by_node()
        for name in sorted(self._ledger.list_nominated_nodes() | preemptors.keys()):
            yield from self._find_placements(name, preemptors.get(name, ()))

    def list_holds_against(self, name: str, pod: Pod) -> list[Hold]:
        """The cards that are kept on this node from that pod, as holds."""
        node = self._ledger.get_node(name)
        if node is None:
            return []
        units = {card.index: card.units for card in node.cards}
        return [
            Hold(
                nominated.pod,
                "reserved",
                {
                    index: units[index] if nominated.request.whole else nominated.request.units
                    for index in nominated.placement.cards
                },
            )
            for nominated in self._list_placements_against(name, pod.uid, pod.priority)
        ]

    def add_preemption(self, pod: Pod, victims: Mapping[str, Collection[str]]) -> None:
        """Preempt answered: the pod counts as nominated to all these nodes until the API shows its nomination."""
        self._pending_preemptions.add_preemption(pod, victims)

    def release_ended_preemptions(self) -> bool:
        """Give capacity back where a preemption has ended; whether others are still pending."""
        for name in sorted(self._pending_preemptions.take_ended_nodes()):
            self._ledger.release_nominated_capacity(name)
        return bool(self._pending_preemptions)

    def _list_placements_against(self, name: str, uid: str, priority: int) -> list[NominatedPlacement]:
        preemptors = self._pending_preemptions.list_pods_on_node(name)
        if not preemptors and name not in self._ledger.list_nominated_nodes():
            return []
        return [
            nominated
            for nominated in self._find_placements(name, preemptors)
            if _has_precedence(nominated.pod, uid, priority)
        ]

    def _find_placements(self, name: str, preemptors: Iterable[Pod]) -> list[NominatedPlacement]:
        """The cards that are kept on this node. A nominee that will find no cards there keeps none from others."""
        placements: list[NominatedPlacement] = []
        for pod in self._list_nominees(name, preemptors):
            future = self._ledger.build_node_after_terminations(
                name, self._pending_preemptions.list_victims(pod.uid, name)
            )
            if future is None or pod.request is None:
                continue
            for each in placements:
                future = hold_on_node(future, each.placement.cards, each.request)
            evaluation = evaluate_node(future, pod.request.card_request, "binpack")
            if isinstance(evaluation, ScoredCards):
                indices = tuple(sorted(card.index for card in evaluation.cards))
                placements.append(NominatedPlacement(pod, pod.request.card_request, Placement(name, indices)))
        return placements

    def _list_nominees(self, name: str, preemptors: Iterable[Pod]) -> list[Pod]:
        """Most important first."""
        nominees = self._ledger.list_nominees(name)
        known = {pod.uid for pod in nominees}
        more = [
            pod for pod in preemptors if pod.uid not in known and self._ledger.get_reservation(pod.uid, name) is None
        ]
        return sorted([*nominees, *more], key=lambda pod: (-pod.priority, pod.created_at, pod.uid))

    def _get_priority(self, uid: str) -> int:
        pod = self._ledger.get_pod(uid)
        return pod.priority if pod is not None else 0


def _has_precedence(nominee: Pod, uid: str, priority: int) -> bool:
    return nominee.uid != uid and nominee.priority >= priority
