"""Puts new rules and profiles into force: builds all nodes under them slice by slice, then exchanges them in one step.

    draft: every node under the new rules  --a slice, other tasks, a slice..-->  those that changed meanwhile  --> exchange

Until the exchange the old rules are in force for every call; from then on the new ones are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
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
    for slice_ in _slice_all(sorted(ledger.list_node_names()), NODES_PER_SLICE):
        draft.read_nodes(slice_)
        await asyncio.sleep(0)
    await _settle_pods(ledger, in_force, settled)
    while stale := _exchange_if_few_stale(ledger, in_force, settled, draft):
        for slice_ in _slice_all(sorted(stale), NODES_PER_SLICE):
            draft.build_nodes(slice_)
            await asyncio.sleep(0)


def _exchange_if_few_stale(
    ledger: Ledger, in_force: PlacementInForce, settled: Mapping[str, SettledPod], draft: _DraftedNodes
) -> Collection[str]:
    """Put the draft into force if one slice completes it. Returns the nodes to build before the next try; empty once it is in force.

    This step must not await: a node that comes, goes or changes between the look at the change log and the exchange would
    be lost, and its next event, with equal facts, would not bring it back.
    """
    stale = draft.take_stale_names()
    if len(stale) > NODES_PER_SLICE:
        return stale
    draft.build_nodes(stale)
    ledger.exchange_placement(in_force, settled, draft.rules, draft.nodes)
    return ()


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
        self.rules = LedgerRules(placement.rules, unit_mib=ledger.unit_mib)
        self.nodes: dict[str, Node] = {}
        self._ledger = ledger
        self._read_names: set[str] = set()
        """Nodes whose cards the new rules count. Some may be gone since."""
        self._generation: int | None = None
        """The generation of the ledger at the last `take_stale_names`."""

    def read_nodes(self, names: Collection[str]) -> None:
        """Read the cards of these nodes: which cards are reserved depends on all nodes."""
        for name in names:
            self._put_node(name)

    def take_stale_names(self) -> Collection[str]:
        """The nodes that changed, came or went since the last call; at first, and if the ledger cannot tell, all known and all read."""
        changed = None if self._generation is None else self._ledger.list_nodes_changed_since(self._generation)
        self._generation = self._ledger.generation
        return self._ledger.list_node_names() | self._read_names if changed is None else changed

    def build_nodes(self, names: Collection[str]) -> None:
        """Build these nodes, and those whose reserved cards change because of them; drop those that are gone."""
        for name in set().union(*map(self._put_node, names)):
            node = self._ledger.nodes.build_under(self.rules, name)
            if node is None:
                self.nodes.pop(name, None)
            else:
                self.nodes[name] = node

    def _put_node(self, name: str) -> set[str]:
        """Returns the node and those whose reserved cards changed with it."""
        self._read_names.add(name)
        return self.rules.put_node(name, self._ledger.nodes.get_facts(name))
