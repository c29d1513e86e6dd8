"""The ledger as one pod finds it: what is kept for a nominated pod is used for pods of lower or equal priority.

The scheduler evicted others for it and protects the sum of its node meanwhile; which card that is, only we know.
Nothing is remembered here: which cards are kept follows from the ledger at every question, so a restart loses nothing.
Each nominee's cards are found on the node as it will be when those that are leaving are gone, the most important
nominee first, so what is kept for them fits together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from cards.node import Node
from cards.pod import Pod
from cards.request import Request
from extender.ledger import Ledger
from policies.judging import judge
from policies.layout import Laid, filled
from policies.policy import Demand, Ranked


@dataclass(frozen=True, slots=True)
class Kept:
    """Cards kept for a nominated pod."""

    pod: Pod
    request: Request
    laid: Laid


class Nominations:
    """A `policies.engine.LedgerView` over the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

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
        if node is None or name not in self._ledger.nominated_nodes():
            return node
        for kept in self.kept(name):
            if self._is_kept_from(kept.pod, uid):
                node = filled(node, kept.laid.cards, kept.request)
        return node

    def special_nodes(self, uid: str) -> list[str]:
        """The nodes that are others to this pod than to everybody else."""
        special = self._ledger.reserved_nodes(uid)
        for name in self._ledger.nominated_nodes():
            if name not in special and any(self._is_kept_from(pod, uid) for pod in self._ledger.nominees(name)):
                special.append(name)
        return special

    def all_kept(self) -> Iterator[Kept]:
        """Whatever is kept anywhere."""
        for name in self._ledger.nominated_nodes():
            yield from self.kept(name)

    def kept(self, name: str) -> list[Kept]:
        """The cards that are kept on this node. A nominee that will find none there keeps nothing from others."""
        future = self._ledger.node_when_left(name)
        kept: list[Kept] = []
        for pod in self._ledger.nominees(name):
            if future is None or pod.ask is None:
                continue
            judged = judge(future, pod.ask.request, "binpack", Demand())
            if isinstance(judged, Ranked):
                indices = tuple(sorted(card.index for card in judged.cards))
                kept.append(Kept(pod, pod.ask.request, Laid(name, indices)))
                future = filled(future, indices, pod.ask.request)
        return kept

    def _is_kept_from(self, nominee: Pod, uid: str) -> bool:
        asking = self._ledger.pod(uid)
        return nominee.uid != uid and nominee.priority >= (asking.priority if asking is not None else 0)
