"""Puts new rules and profiles into force: builds all nodes under them slice by slice, then exchanges them in one step.

    draft: every node under the new rules  --a slice, other tasks, a slice..-->  those that changed meanwhile  --> exchange

Until the exchange the old rules are in force for every call; from then on the new ones are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

from extender.state.known_pods import SettledPod
from extender.state.ledger import Ledger
from extender.state.ledger_rules import LedgerRules
from extender.state.namespaces import NamespaceLabels, PlacementInForce
from vrampack.cards.node import Node
from vrampack.cards.profiles import PlacementSettings

NODES_PER_SLICE = 10
"""Nodes between two yields to the event loop: about 4 ms."""
PODS_PER_SLICE = 200
"""Waiting pods between two yields: about 2 ms."""

_Item = TypeVar("_Item")


async def apply_placement(
    ledger: Ledger, placement: PlacementSettings, namespaces: NamespaceLabels | None = None
) -> None:
    """Apply these settings to all nodes and pods. What is held stays held.

    `namespaces` has the labels that the settings ask for.
    """
    settled: dict[str, SettledPod] = {}
    in_force = PlacementInForce(placement, namespaces)
    if placement.rules == ledger.placement.rules:
        await _settle_pods(ledger, in_force, settled)
        ledger.exchange_placement(in_force, settled)
        return
    draft = _DraftedNodes(ledger, placement)
    names: Collection[str] = ledger.list_node_names()
    for slice_ in _slice_all(sorted(names), NODES_PER_SLICE):
        draft.read_nodes(slice_)
        await asyncio.sleep(0)
    await _settle_pods(ledger, in_force, settled)
    while len(names) > NODES_PER_SLICE:
        generation = ledger.generation
        for slice_ in _slice_all(sorted(names), NODES_PER_SLICE):
            draft.build_nodes(slice_)
            await asyncio.sleep(0)
        changed = ledger.list_nodes_changed_since(generation)
        names = ledger.list_node_names() if changed is None else changed
    draft.build_nodes(names)
    ledger.exchange_placement(in_force, settled, draft.rules, draft.nodes)


async def _settle_pods(ledger: Ledger, in_force: PlacementInForce, settled: dict[str, SettledPod]) -> None:
    """Apply the settings to waiting pods. The exchange settles those that change until then."""
    for slice_ in _slice_all(ledger.list_unbound_pods(), PODS_PER_SLICE):
        settled.update((pod.uid, SettledPod(pod, in_force.resolve_pod(pod))) for pod in slice_)
        await asyncio.sleep(0)


def _slice_all(ordered: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]


class _DraftedNodes:
    """Nodes as they are under rules that are not in force yet."""

    def __init__(self, ledger: Ledger, placement: PlacementSettings) -> None:
        self.rules = LedgerRules(placement.rules)
        self.nodes: dict[str, Node] = {}
        self._ledger = ledger

    def read_nodes(self, names: Collection[str]) -> None:
        """Read the cards of these nodes: which cards are reserved depends on all nodes."""
        for name in names:
            self.rules.put_node(name, self._ledger.get_facts(name))

    def build_nodes(self, names: Collection[str]) -> None:
        """Build these nodes, and those whose reserved cards change because of them."""
        for name in set(self._list_affected(names)):
            node = self._ledger.build_node_under(self.rules, name)
            if node is None:
                self.nodes.pop(name, None)
            else:
                self.nodes[name] = node

    def _list_affected(self, names: Collection[str]) -> Iterator[str]:
        for name in names:
            yield from self.rules.put_node(name, self._ledger.get_facts(name))
