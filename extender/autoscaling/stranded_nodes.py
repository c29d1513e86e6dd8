"""Finds the nodes that must stay, because an autoscaler that counts units would move their pods to where no card has room.

An autoscaler removes a node if its pods fit elsewhere by the nodes' sums. It may remove several at once, so it is asked whether the
pods of *all* nodes that may go find cards together: from the least used node on, each node's pods are placed on a copy of the
others, first on those that are used most. A node whose pods all find cards may go, and no pod is moved to it. One of which some pod
finds none must stay, and so must one to which pods were moved, unless no pod of it fits elsewhere even by the sums: then the
autoscaler leaves it alone.

CPU, main memory, volumes and rules about other pods are left to the autoscaler, which looks at them itself.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Container
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, TypeAlias

from extender.autoscaling.node_rules import NodeRules, RuleKey
from extender.state.ledger import Ledger
from policies.trial_placement import Placement, TrialCluster
from vrampack.cards.holding import HoldState
from vrampack.cards.node import Node
from vrampack.cards.request import CardRequest
from vrampack.cards.tuned_policy import TunedPolicy

VISITS_PER_SLICE = 50
"""Nodes between two yields to the event loop: about 2 ms."""
STAYING: frozenset[HoldState] = frozenset({"bound", "reserved", "unconfirmed"})
"""The other pods leave, or their scheduler has yet to choose."""
BINPACK = TunedPolicy("binpack")


class _MovingPod(NamedTuple):
    asked_units: int
    request: CardRequest
    rules: RuleKey | None


@dataclass(frozen=True, slots=True)
class _CountedNode:
    name: str
    held_units: int
    room: float
    """Units that no pod asks for, by which an autoscaler counts; infinite if unknown."""
    pods: tuple[_MovingPod, ...]
    """Those that ask for the most first."""


_Kind: TypeAlias = tuple[CardRequest, RuleKey | None]
"""Pods of one kind find the same cards on the same nodes."""


async def find_stranded_nodes(ledger: Ledger, rules: NodeRules) -> set[str]:
    """Their names. Other tasks run in between, so it is as right as the ledger was during the call."""
    nodes: dict[str, Node] = {}
    counted: list[_CountedNode] = []
    for count, node in enumerate(ledger.list_nodes(), start=1):
        if node.cards:
            nodes[node.name] = node
            counted.append(_read_node(ledger, rules, node.name))
        if count % VISITS_PER_SLICE == 0:
            await asyncio.sleep(0)
    return await _Plan(rules, nodes, counted).find_stranded()


def _read_node(ledger: Ledger, rules: NodeRules, name: str) -> _CountedNode:
    holds = [hold for hold in ledger.list_holds(name) if hold.state in STAYING]
    pods = [
        _MovingPod(request.asked_units, request.card_request, rules.find_key(hold.pod.uid))
        for hold in holds
        if (request := hold.pod.request) is not None and not rules.stays_with_its_node(hold.pod.uid)
    ]
    pods.sort(key=lambda pod: -pod.asked_units)
    unasked_units = ledger.nodes.get_unasked_units(name)
    held_units = sum(sum(hold.units.values()) for hold in holds)
    return _CountedNode(name, held_units, inf if unasked_units is None else unasked_units, tuple(pods))


class _Plan:
    """One pass over all nodes."""

    def __init__(self, rules: NodeRules, nodes: dict[str, Node], counted: list[_CountedNode]) -> None:
        self._rules = rules
        self._trial = TrialCluster(nodes.values())
        self._nodes = sorted(counted, key=lambda node: (node.held_units, node.name))
        self._open: dict[_Kind, dict[str, None]] = {}
        """The nodes on which a pod of the kind may still find cards, the fullest first: rooms only shrink."""
        self._roomiest: dict[RuleKey | None, list[_CountedNode]] = {}
        """The two nodes with the most room by their sums among those that such pods may use."""
        self._leaving: set[str] = set()
        self._visits = 0

    async def find_stranded(self) -> set[str]:
        staying: list[_CountedNode] = []
        receiving: set[str] = set()
        for node in [each for each in self._nodes if each.pods]:
            chosen = None if node.name in receiving else await self._place_elsewhere(node)
            if chosen is None:
                staying.append(node)
            else:
                self._leaving.add(node.name)
                receiving |= chosen
        return {node.name for node in staying if await self._seems_removable(node)}

    async def _place_elsewhere(self, node: _CountedNode) -> set[str] | None:
        """Hold cards elsewhere for all its pods. Returns where; None, and nothing is held, if one finds none."""
        before: dict[str, Node] = {}
        for pod in node.pods:
            placement = await self._find_placement(pod, node.name, before)
            if placement is None:
                self._trial.put_back(before)
                return None
            before.setdefault(placement.node_name, self._trial.get_node(placement.node_name))
            self._trial.hold_placement(placement, pod.request)
        return set(before)

    async def _find_placement(self, pod: _MovingPod, leaving: str, chosen: Container[str]) -> Placement | None:
        """On the first node with room. `chosen` nodes may have more room again, if this node has to stay after all."""
        names, found, full = await self._list_open(pod), None, []
        for name in names:
            if name == leaving:
                continue
            await self._count_visit()
            found = None if name in self._leaving else self._trial.find_placement(name, pod.request, BINPACK)
            if found is not None:
                break
            if name not in chosen:
                full.append(name)
        for name in full:
            del names[name]
        return found

    async def _list_open(self, pod: _MovingPod) -> dict[str, None]:
        kind = (pod.request, pod.rules)
        if kind not in self._open:
            usable = await self._list_usable(pod.rules)
            self._open[kind] = dict.fromkeys(node.name for node in reversed(usable))
        return self._open[kind]

    async def _seems_removable(self, node: _CountedNode) -> bool:
        """Whether some pod of it fits elsewhere by the sums."""
        for pod in node.pods:
            if any(
                other.name != node.name and other.room >= pod.asked_units for other in await self._list_roomiest(pod)
            ):
                return True
        return False

    async def _list_roomiest(self, pod: _MovingPod) -> list[_CountedNode]:
        if pod.rules not in self._roomiest:
            usable = await self._list_usable(pod.rules)
            self._roomiest[pod.rules] = heapq.nlargest(2, usable, key=lambda node: node.room)
        return self._roomiest[pod.rules]

    async def _list_usable(self, key: RuleKey | None) -> list[_CountedNode]:
        usable = []
        for node in self._nodes:
            await self._count_visit()
            if self._rules.may_use(key, node.name):
                usable.append(node)
        return usable

    async def _count_visit(self) -> None:
        self._visits += 1
        if self._visits % VISITS_PER_SLICE == 0:
            await asyncio.sleep(0)
