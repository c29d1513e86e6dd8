"""What panels must show, counted again from the API's objects by the auditor's reading: no line of the product is in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.auditor.api import AuditorApi
from tests.auditor.cards import NodeCards, read_node
from tests.auditor.holdings import find_holdings
from tests.auditor.pods import AuditedPod, read_pod
from tests.auditor.terms import Terms

MIB = 1 << 20
TERMS = Terms()
UNIT_BYTES = TERMS.unit_mib * MIB


@dataclass(frozen=True, slots=True)
class ClusterRecount:
    """Nodes and pods as the API server showed them."""

    nodes: Sequence[NodeCards]
    pods: Sequence[AuditedPod]

    @property
    def bound(self) -> Sequence[AuditedPod]:
        return [pod for pod in self.pods if pod.node]

    def sum_capacity_bytes(self) -> Mapping[str, int]:
        """By node."""
        return {node.name: sum(card.memory_mib or 0 for card in node.cards) * MIB for node in self.nodes}

    def sum_held_bytes(self) -> Mapping[str, int]:
        """By node."""
        return {node.name: sum(self.count_held_units(node)) * UNIT_BYTES for node in self.nodes}

    def sum_scattered_bytes(self) -> Mapping[str, int]:
        """Free memory beside each node's freest card."""
        free = {node.name: self._count_free_units(node) for node in self.nodes}
        return {name: (sum(units) - max(units)) * UNIT_BYTES for name, units in free.items()}

    def count_held_units(self, node: NodeCards) -> Sequence[int]:
        """By card."""
        live = [pod for pod in self.pods if pod.is_live and pod.node == node.name]
        return [sum(held.units for held in find_holdings(node, card, live)) for card in node.cards]

    def count_waiting(self) -> Mapping[str, int]:
        """Pods by why they wait, for requests of one card."""
        return Counter(self._find_reason(pod.ask.units) for pod in self.pods if not pod.node)

    def _find_reason(self, units: int) -> str:
        free = [self._count_free_units(node) for node in self.nodes]
        if any(units <= most for cards in free for most in cards):
            return "fits"
        if all(units > card.units for node in self.nodes for card in node.cards):
            return "never"
        return "fragmented" if any(units <= sum(cards) for cards in free) else "full"

    def _count_free_units(self, node: NodeCards) -> Sequence[int]:
        return [card.units - held for card, held in zip(node.cards, self.count_held_units(node), strict=True)]


def recount_cluster(api_url: str) -> ClusterRecount:
    """Read everything again."""
    api = AuditorApi(api_url)
    return ClusterRecount(
        [read_node(node, TERMS) for node in api.list("nodes")[0]], [read_pod(pod, TERMS) for pod in api.list("pods")[0]]
    )
