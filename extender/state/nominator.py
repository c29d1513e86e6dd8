"""The ledger as pods find it: cards kept for a nominated pod count as used for pods of lower or equal priority.

The scheduler evicted others for the nominated pod and meanwhile protects only the node's total; only we know the card.
The kept cards are a function of the ledger: an answer of preempt counts as a nomination until the API shows the real one
(`PendingPreemptions`). A nominee's cards are found on the node as it will be when the terminating pods, and the victims
named for it, are gone; the most important nominee comes first, so that all kept cards fit together.

They are computed once for each state of a node and its nominees, when the ledger's log of changes names the node, and not
for every pod that asks. What a pod finds depends only on its priority: cards are kept from it for nominees of the same
or a higher one, so the least priority of such nominees, the pod's *floor*, decides. Only nominees themselves, and pods
with a reservation, see some node differently from other pods.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from extender.state.ledger import Ledger
from extender.state.pending_preemptions import PendingPreemptions
from policies.engine.following import NodeFollower
from policies.engine.ledger_view import PriorityFloor
from policies.evaluate import evaluate_node
from policies.policy import ScoredCards
from policies.trial_placement import Placement, hold_on_node
from vrampack.cards.holding import Hold, build_placed_hold
from vrampack.cards.node import Node
from vrampack.cards.pod import Pod
from vrampack.cards.request import CardRequest
from vrampack.cards.tuned_policy import TunedPolicy

NODES_PER_SLICE = 25
"""Nodes between two yields to the event loop: about 2 ms where cards are kept on each."""


BINPACK = TunedPolicy("binpack")


@dataclass(frozen=True, slots=True)
class NominatedPlacement:
    """Cards kept for a nominated pod."""

    pod: Pod
    request: CardRequest
    placement: Placement


@dataclass(slots=True)
class KeptCards:
    """All that is kept on one node, most important first, and the node as pods find it."""

    placements: list[NominatedPlacement]
    node: Node | None
    """The node without the kept cards."""
    filled_nodes: dict[int, Node] = field(default_factory=dict)
    """The node with the first placements held, by their number."""


class Nominator(NodeFollower):
    """A `LedgerView` for the engine. A node is stale when it, its nominees or their victims changed."""

    def __init__(self, ledger: Ledger, pending_preemptions: PendingPreemptions) -> None:
        super().__init__()
        self._ledger = ledger
        self._pending_preemptions = pending_preemptions
        self._preemptors: Mapping[str, list[Pod]] = {}
        """The pods with a pending preemption, by node, as of the last update."""
        self._kept: dict[str, KeptCards] = {}
        self._kept_generation = 0
        self._floors: list[int] = []
        """The priorities of all nominees, ascending."""
        self._generation = 0
        """The generation of the ledger up to which `_kept` is right, except for `_stale_nodes`."""
        self._caller: Pod | None = None

    def note_caller(self, pod: Pod) -> None:
        """A call is about this pod. Its priority counts as the call has it while the ledger has not been shown the pod."""
        self._caller = pod

    @property
    def generation(self) -> int:
        self.follow()
        return self._ledger.generation

    def list_nodes_changed_since(self, generation: int) -> list[str] | None:
        return self._ledger.list_nodes_changed_since(generation)

    def list_node_names(self) -> Collection[str]:
        return self._ledger.list_node_names()

    def list_nodes_with_kept_cards(self) -> Collection[str]:
        self.follow()
        return self._kept.keys()

    def get_priority_floor(self, uid: str) -> PriorityFloor:
        """The least priority of the nominees whose kept cards the pod must leave; None: no card is kept from it."""
        self.follow()
        position = bisect_left(self._floors, self._get_priority(uid))
        return self._floors[position] if position < len(self._floors) else None

    def get_kept_generation(self, floor: PriorityFloor) -> int:
        self.follow()
        return 0 if floor is None else self._kept_generation

    def get_node(self, name: str, floor: PriorityFloor = None) -> Node | None:
        """The node, counting as used the cards kept for nominees of this priority or a higher one."""
        node = self._ledger.get_node(name)
        if node is None or floor is None:
            return node
        self.follow()
        kept = self._kept.get(name)
        if kept is None:
            return node
        count = sum(nominated.pod.priority >= floor for nominated in kept.placements)
        if count and count not in kept.filled_nodes:
            kept.filled_nodes[count] = _hold_placements(node, kept.placements[:count])
        return kept.filled_nodes[count] if count else node

    def get_node_for_pod(self, name: str, uid: str) -> Node | None:
        """The node without the pod's own place, counting as used the cards that are kept from the pod."""
        node = self._ledger.get_node_for_pod(name, uid)
        return None if node is None else _hold_placements(node, self._list_placements_against(name, uid))

    def list_pod_specific_nodes(self, uid: str) -> list[str]:
        """The nodes that look different to this pod than to other pods of its floor."""
        self.follow()
        pod = self._ledger.get_pod(uid)
        names = [place.node_name for place in self._ledger.places.list_places_of(uid)]
        if pod is not None and pod.node_to_keep in self._kept:
            names.append(pod.node_to_keep)
        if uid in self._pending_preemptions:
            names += [name for name, pods in self._preemptors.items() if any(each.uid == uid for each in pods)]
        return list(dict.fromkeys(names))

    def is_nominee(self, pod: Pod) -> bool:
        """Whether other pods were evicted for it, or may be."""
        return bool(pod.node_to_keep) or pod.uid in self._pending_preemptions

    def list_placements(self) -> Iterator[NominatedPlacement]:
        """All kept cards, by node."""
        self.follow()
        for name in sorted(self._kept):
            yield from self._kept[name].placements

    def list_holds_against(self, name: str, pod: Pod) -> list[Hold]:
        """The cards that are kept on this node from that pod, as holds."""
        node = self._ledger.get_node(name)
        if node is None:
            return []
        cards = {card.index: card for card in node.cards}
        return [
            build_placed_hold(nominated.pod, nominated.request, [cards[index] for index in nominated.placement.cards])
            for nominated in self._list_placements_against(name, pod.uid, pod.priority)
        ]

    def is_any_terminating(self, uids: Iterable[str]) -> bool:
        """Whether any of these pods is terminating or gone."""
        return self._pending_preemptions.is_any_terminating(uids)

    def add_preemption(self, pod: Pod, victims: Mapping[str, Collection[str]], going_nodes: Iterable[str]) -> None:
        """Preempt was answered: the pod counts as nominated to all these nodes until the API shows its nomination.

        `going_nodes` are the nodes of which `is_any_terminating` is true for the victims.
        """
        self._pending_preemptions.add_preemption(pod, victims, going_nodes)

    def withdraw_preemption(self, uid: str) -> None:
        """No pod is evicted for this one any more: it keeps cards only where the API shows it nominated."""
        self._pending_preemptions.withdraw_preemption(uid)

    def release_ended_preemptions(self) -> bool:
        """Release what ended preemptions kept. Returns whether others are still pending."""
        for name in sorted(self._pending_preemptions.take_ended_nodes()):
            self._ledger.release_nominated_capacity(name)
        return bool(self._pending_preemptions)

    def list_floors(self) -> list[int]:
        """The priorities of all nominees, ascending."""
        self.follow()
        return self._floors

    def forget_all(self) -> None:
        """Recompute the kept cards of all nodes at the next call."""
        self._kept.clear()
        self._kept_generation += 1
        self._floors, self._generation = [], 0
        self._stale_nodes.clear()

    async def catch_up(self) -> None:
        """Recompute the kept cards of all stale nodes, slice by slice, so that other tasks run in between."""
        has_more = True
        while has_more:
            has_more = self.follow_slice(NODES_PER_SLICE)
            await asyncio.sleep(0)

    def _note_changes(self) -> None:
        if self._generation == self._ledger.generation and not self._pending_preemptions.has_changed:
            return
        preemptors = self._pending_preemptions.list_pods_by_node()
        for name in self._pending_preemptions.take_changed_nodes():
            self._ledger.mark_node_changed(name)
        self._preemptors = preemptors
        if self._generation != self._ledger.generation:
            self._list_stale_nodes(preemptors)

    def _list_stale_nodes(self, preemptors: Mapping[str, list[Pod]]) -> None:
        nominated = self._ledger.nominations.list_nodes()
        if not (self._kept or nominated or preemptors):
            self._floors, self._generation = [], self._ledger.generation
            return
        changed: Iterable[str] | None = self._ledger.list_nodes_changed_since(self._generation)
        if changed is None:
            changed = {*self._kept, *nominated, *preemptors}
        self._stale_nodes |= {
            name: None for name in changed if name in self._kept or name in nominated or name in preemptors
        }
        self._floors = sorted(
            {
                *self._ledger.nominations.list_priorities(),
                *(pod.priority for pods in preemptors.values() for pod in pods),
            }
        )
        self._generation = self._ledger.generation

    def _put_node(self, name: str) -> None:
        before = self._kept.pop(name, None)
        placements = self._find_placements(name)
        is_same = placements == (before.placements if before is not None else [])
        if not is_same:
            self._kept_generation += 1
        if placements:
            node = self._ledger.get_node(name)
            if before is None or before.node is not node or not is_same:
                before = KeptCards(placements, node)
            self._kept[name] = before

    def _list_placements_against(
        self, name: str, uid: str, priority: int | None = None
    ) -> Collection[NominatedPlacement]:
        self.follow()
        kept = self._kept.get(name)
        if kept is None:
            return ()
        least = self._get_priority(uid) if priority is None else priority
        return [each for each in kept.placements if each.pod.uid != uid and each.pod.priority >= least]

    def _find_placements(self, name: str) -> list[NominatedPlacement]:
        """The cards to keep on this node. A nominee that will find no cards there keeps none from others."""
        placements: list[NominatedPlacement] = []
        for pod in self._list_nominees(name):
            future = self._ledger.build_node_after_terminations(
                name, self._pending_preemptions.list_victims(pod.uid, name)
            )
            if future is None or pod.request is None:
                continue
            evaluation = evaluate_node(_hold_placements(future, placements), pod.request.card_request, BINPACK)
            if isinstance(evaluation, ScoredCards):
                indices = tuple(sorted(card.index for card in evaluation.cards))
                placements.append(NominatedPlacement(pod, pod.request.card_request, Placement(name, indices)))
        return placements

    def _list_nominees(self, name: str) -> list[Pod]:
        """The nominees of this node, most important first."""
        nominees = self._ledger.list_nominees(name)
        known = {pod.uid for pod in nominees}
        more = [
            pod
            for pod in self._preemptors.get(name, ())
            if pod.uid not in known and not self._ledger.places.needs_no_cards_of(pod.uid, name)
        ]
        return sorted([*nominees, *more], key=lambda pod: (-pod.priority, pod.created_at, pod.uid))

    def _get_priority(self, uid: str) -> int:
        pod = self._ledger.get_pod(uid)
        if pod is None and self._caller is not None and self._caller.uid == uid:
            pod = self._caller
        return pod.priority if pod is not None else 0


def _hold_placements(node: Node, placements: Iterable[NominatedPlacement]) -> Node:
    held = [(nominated.placement.cards, nominated.request) for nominated in placements]
    return hold_on_node(node, held) if held else node
