"""The ledger as one pod finds it: what is kept for a nominated pod is used for pods of lower or equal priority.

The scheduler evicted others for it and protects the sum of its node meanwhile; which card that is, only we know.
Which cards are kept follows from the ledger at every question; what preempt answered lately counts as a nomination until
the API shows the real one (`evictions`). Each nominee's cards are found on the node as it will be when those that are
leaving, and those that were named to be evicted for it, are gone, the most important nominee first, so what is kept for
them fits together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from extender.evictions import Evictions
from extender.ledger import Ledger
from policies.judging import judge
from policies.layout import Laid, filled
from policies.policy import Demand, Ranked
from vrampack.cards.holding import Hold
from vrampack.cards.node import Node
from vrampack.cards.pod import Pod
from vrampack.cards.request import Request


@dataclass(frozen=True, slots=True)
class Kept:
    """Cards kept for a nominated pod."""

    pod: Pod
    request: Request
    laid: Laid


class Nominations:
    """A `policies.engine.LedgerView` over the ledger."""

    def __init__(self, ledger: Ledger, evictions: Evictions) -> None:
        self._ledger = ledger
        self._evictions = evictions

    @property
    def generation(self) -> int:
        return self._ledger.generation

    def changed_since(self, generation: int) -> list[str] | None:
        return self._ledger.changed_since(generation)

    def node_names(self) -> Collection[str]:
        return self._ledger.node_names()

    def node(self, name: str) -> Node | None:
        return self._ledger.node(name)

    def node_for(self, name: str, uid: str) -> Node | None:
        """The node less what it has reserved for the pod itself, plus what is kept from it for nominated pods."""
        node = self._ledger.node_for(name, uid)
        if node is None:
            return None
        for kept in self._kept_from(name, uid, self._priority(uid)):
            node = filled(node, kept.laid.cards, kept.request)
        return node

    def special_nodes(self, uid: str) -> list[str]:
        """The nodes that are others to this pod than to everybody else."""
        special = self._ledger.reserved_nodes(uid)
        priority = self._priority(uid)
        expected = self._evictions.pods()
        for name in self._ledger.nominated_nodes() | expected.keys():
            nominees = self._nominees(name, expected.get(name, ()))
            if name not in special and any(_is_kept_from(pod, uid, priority) for pod in nominees):
                special.append(name)
        return special

    def is_nominee(self, pod: Pod) -> bool:
        """Whether others were evicted for it, or may be."""
        return bool(pod.nominated_node) or pod.uid in self._evictions

    def all_kept(self) -> Iterator[Kept]:
        """Whatever is kept anywhere."""
        expected = self._evictions.pods()
        for name in sorted(self._ledger.nominated_nodes() | expected.keys()):
            yield from self._kept(name, expected.get(name, ()))

    def holds_kept_from(self, name: str, pod: Pod) -> list[Hold]:
        """What is kept on this node from that pod, as if it were held."""
        node = self._ledger.node(name)
        if node is None:
            return []
        units = {card.index: card.units for card in node.cards}
        return [
            Hold(
                kept.pod,
                "reserved",
                {at: units[at] if kept.request.whole else kept.request.units for at in kept.laid.cards},
            )
            for kept in self._kept_from(name, pod.uid, pod.priority)
        ]

    def expect(self, pod: Pod, victims: Mapping[str, Collection[str]]) -> None:
        """Preempt answered: as if the pod were nominated to all these nodes, until it shows to which it is."""
        self._evictions.expect(pod, victims)

    def settle(self) -> bool:
        """Where nothing is expected any longer there is room for those who were refused for it; whether more may end."""
        for name in sorted(self._evictions.ended()):
            self._ledger.kept_no_longer(name)
        return bool(self._evictions)

    def _kept_from(self, name: str, uid: str, priority: int) -> list[Kept]:
        expected = self._evictions.pods_at(name)
        if not expected and name not in self._ledger.nominated_nodes():
            return []
        return [kept for kept in self._kept(name, expected) if _is_kept_from(kept.pod, uid, priority)]

    def _kept(self, name: str, expected: Iterable[Pod]) -> list[Kept]:
        """The cards that are kept on this node. A nominee that will find none there keeps nothing from others."""
        kept: list[Kept] = []
        for pod in self._nominees(name, expected):
            future = self._ledger.node_when_left(name, self._evictions.victims(pod.uid, name))
            if future is None or pod.ask is None:
                continue
            for each in kept:
                future = filled(future, each.laid.cards, each.request)
            judged = judge(future, pod.ask.request, "binpack", Demand())
            if isinstance(judged, Ranked):
                indices = tuple(sorted(card.index for card in judged.cards))
                kept.append(Kept(pod, pod.ask.request, Laid(name, indices)))
        return kept

    def _nominees(self, name: str, expected: Iterable[Pod]) -> list[Pod]:
        """Most important first."""
        nominees = self._ledger.nominees(name)
        known = {pod.uid for pod in nominees}
        more = [pod for pod in expected if pod.uid not in known and self._ledger.reservation(pod.uid, name) is None]
        return sorted([*nominees, *more], key=lambda pod: (-pod.priority, pod.created_at, pod.uid))

    def _priority(self, uid: str) -> int:
        pod = self._ledger.pod(uid)
        return pod.priority if pod is not None else 0


def _is_kept_from(nominee: Pod, uid: str, priority: int) -> bool:
    return nominee.uid != uid and nominee.priority >= priority
