"""Places waiting pods on a copy of the nodes that gained capacity, in slices that hold the loop for a few milliseconds."""

from __future__ import annotations

import asyncio
import heapq
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from policies.outlook import Outlook
from policies.trial_placement import Placement, TrialCluster
from vrampack.cards.host_room import HostResources
from vrampack.cards.node import Node
from vrampack.cards.request import CardRequest, PodRequest
from vrampack.cards.tuned_policy import TunedPolicy

NODES_PER_SLICE = 50
"""Nodes between two yields to the event loop: about 2 ms."""
MAX_NODE_VISITS = 50_000
"""Nodes to visit in one round for all pods: at most a second and a half of work; the next round does the rest."""

RequestShape = tuple[CardRequest, int, TunedPolicy, HostResources | None]
"""What decides where a pod fits and which place is best; the number is of the units that the scheduler counts for it."""
RankedPlacement = tuple[tuple[float, str], int, Placement]
"""A rank, how often the node had been filled when the place was found, and the place."""
NO_TOTALS: Mapping[str, int] = {}


class OutlookSource(Protocol):
    """Gives what policies know besides nodes and requests."""

    def get_outlook(self, policy: TunedPolicy, host: HostResources | None) -> Outlook:
        """The outlook for requests that take this much of their host; the answer has it rounded up."""
        ...


class DryRun:
    """A copy of the nodes that gained capacity, filled pod by pod.

    `nodes_gained` has the latest gain first, each node with the capacity generation of its gain. `placements` count as
    held, each with the units that the scheduler counts for it. `unasked_units` are those that no pod asks for, by node name.
    The places of a request shape are found once and stay sorted; filling a node makes its old places stale and adds
    new ones. CPU and memory of hosts are not updated: they only rank.
    """

    def __init__(
        self,
        nodes_gained: Sequence[tuple[int, Node]],
        placements: Iterable[tuple[Placement, CardRequest, int]],
        outlooks: OutlookSource,
        unasked_units: Mapping[str, int] = NO_TOTALS,
    ) -> None:
        self._outlooks = outlooks
        self._newest_first = [-generation for generation, _ in nodes_gained]
        self._names = [node.name for _, node in nodes_gained]
        self._position = {name: position for position, name in enumerate(self._names)}
        self._trial = TrialCluster(node for _, node in nodes_gained)
        self._empty_trial = TrialCluster(node for _, node in nodes_gained)
        self._unasked_units = dict(unasked_units)
        self._unasked_units_when_empty = unasked_units
        self._filled: defaultdict[str, int] = defaultdict(int)
        self._ranked_placements: dict[tuple[RequestShape, int], list[RankedPlacement]] = {}
        """Heaps, by shape and by how many nodes, the latest first, they cover."""
        self._exhausted: dict[RequestShape, int] = {}
        """How many of the nodes, the latest first, have no place left for the shape."""
        self._unplaceable: dict[RequestShape, int] = {}
        """The same for nodes with nothing placed on them; shapes in `_fits_alone` fit the node after these."""
        self._fits_alone: set[RequestShape] = set()
        self._visits = 0
        for placement, request, asked_units in placements:
            self._count_placement(placement, request, asked_units)

    @property
    def is_budget_spent(self) -> bool:
        return self._visits >= MAX_NODE_VISITS

    async def place_pod(
        self, pod_request: PodRequest, policy: TunedPolicy, *, since: int, excluded_nodes: Collection[str] = ()
    ) -> Placement | None:
        """Take the best place on the nodes that gained capacity after generation `since`; None when there is none."""
        shape, count = self._get_shape(pod_request, policy), self._count_nodes_since(since)
        if count <= self._exhausted.get(shape, 0):
            return None
        ranked = self._ranked_placements.get((shape, count))
        if ranked is None:
            ranked = self._ranked_placements[shape, count] = await self._find_placements(shape, count)
        placement = self._take_best(ranked, excluded_nodes)
        if placement is not None:
            await self._hold_placement(placement, pod_request)
            await asyncio.sleep(0)
        elif not excluded_nodes:
            self._exhausted[shape] = count
        return placement

    async def is_unplaceable(self, pod_request: PodRequest, policy: TunedPolicy, *, since: int) -> bool:
        """Whether it would find no place on those nodes even if it were the only waiting pod."""
        shape, count = self._get_shape(pod_request, policy), self._count_nodes_since(since)
        while (position := self._unplaceable.get(shape, 0)) < count:
            if shape in self._fits_alone or self._fits_alone_on(self._names[position], pod_request, policy):
                self._fits_alone.add(shape)
                return False
            self._unplaceable[shape] = position + 1
            await self._count_visit()
        return True

    def _get_shape(self, pod_request: PodRequest, policy: TunedPolicy) -> RequestShape:
        """The pod's shape: pods of one shape have the same places. It has CPU and memory if the policy reads them."""
        host = self._outlooks.get_outlook(policy, pod_request.host).request_host
        return pod_request.card_request, pod_request.asked_units, policy, host

    def _fits_alone_on(self, name: str, pod_request: PodRequest, policy: TunedPolicy) -> bool:
        return (
            _takes_units(self._unasked_units_when_empty, name, pod_request.asked_units)
            and self._empty_trial.find_placement(name, pod_request.card_request, policy) is not None
        )

    def _find_placement(self, name: str, shape: RequestShape) -> Placement | None:
        request, asked_units, policy, host = shape
        if not _takes_units(self._unasked_units, name, asked_units):
            return None
        return self._trial.find_placement(name, request, policy, self._outlooks.get_outlook(policy, host))

    def _count_nodes_since(self, since: int) -> int:
        return bisect_left(self._newest_first, -since)

    async def _find_placements(self, shape: RequestShape, count: int) -> list[RankedPlacement]:
        ranked: list[RankedPlacement] = []
        for name in self._names[:count]:
            placement = self._find_placement(name, shape)
            if placement is not None:
                ranked.append((placement.sort_key, self._filled[name], placement))
            await self._count_visit()
        heapq.heapify(ranked)
        return ranked

    def _take_best(self, ranked_placements: list[RankedPlacement], excluded_nodes: Collection[str]) -> Placement | None:
        """The best place that is not stale, which stays in the heap; stale ones are removed."""
        passed_over: list[RankedPlacement] = []
        best: Placement | None = None
        while ranked_placements and best is None:
            _, filled, placement = ranked_placements[0]
            if filled == self._filled[placement.node_name] and placement.node_name not in excluded_nodes:
                best = placement
            else:
                passed = heapq.heappop(ranked_placements)
                if filled == self._filled[placement.node_name]:
                    passed_over.append(passed)
        for ranked in passed_over:
            heapq.heappush(ranked_placements, ranked)
        return best

    def _count_placement(self, placement: Placement, request: CardRequest, asked_units: int) -> None:
        self._trial.hold_placement(placement, request)
        if placement.node_name in self._unasked_units:
            self._unasked_units[placement.node_name] -= asked_units

    async def _hold_placement(self, placement: Placement, pod_request: PodRequest) -> None:
        name = placement.node_name
        self._count_placement(placement, pod_request.card_request, pod_request.asked_units)
        self._filled[name] += 1
        for (shape, count), ranked in self._ranked_placements.items():
            if self._position[name] < count:
                found = self._find_placement(name, shape)
                if found is not None:
                    heapq.heappush(ranked, (found.sort_key, self._filled[name], found))
                await self._count_visit()

    async def _count_visit(self) -> None:
        """Count one more node, and yield to the event loop now and then."""
        self._visits += 1
        if self._visits % NODES_PER_SLICE == 0:
            await asyncio.sleep(0)


def _takes_units(unasked_units: Mapping[str, int], name: str, asked_units: int) -> bool:
    """Whether the scheduler's own sum lets a pod on the node that asks for so much."""
    unasked = unasked_units.get(name)
    return unasked is None or asked_units <= unasked
