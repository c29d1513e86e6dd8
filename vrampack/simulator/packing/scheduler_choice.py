"""What kube-scheduler does by itself: which nodes it looks at, and how its own plug-ins score them.

As shipped: `percentageOfNodesToScore` adapts to the size of the cluster, and of the default score plug-ins two tell nodes apart
here: NodeResourcesFit (LeastAllocated) and NodeResourcesBalancedAllocation, both by CPU and memory with weight 1. Ties are drawn.
See `numFeasibleNodesToFind` in schedule_one.go, least_allocated.go and balanced_allocation.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from vrampack.cards.host_room import HostResources

MIN_FEASIBLE_NODES = 100
MIN_PERCENTAGE = 5
MAX_SCORE = 100
NO_REQUEST = HostResources(100, 200)
"""What the scheduler takes a pod for that asks for nothing, when it scores."""


class SchedulerChoice:
    """Over hosts of fixed capacity, in the order of their names."""

    def __init__(self, capacities: Mapping[str, HostResources], random: Random) -> None:
        self._capacities = capacities
        self._names = list(capacities)
        self._random = random
        self._next_start = 0

    def list_feasible_nodes(self, is_feasible: Callable[[str], bool]) -> list[str]:
        """As many as the scheduler looks for, from where it stopped looking for the pod before."""
        wanted, found, looked_at = count_wanted_nodes(len(self._names)), list[str](), 0
        for looked_at in range(1, len(self._names) + 1):
            name = self._names[(self._next_start + looked_at - 1) % len(self._names)]
            if is_feasible(name):
                found.append(name)
                if len(found) == wanted:
                    break
        self._next_start = (self._next_start + looked_at) % len(self._names)
        return found

    def choose_node(
        self,
        names: Sequence[str],
        rooms: Mapping[str, HostResources],
        request: HostResources,
        extender_scores: Mapping[str, int] | None = None,
    ) -> str:
        """The highest total of plug-ins and extender. `rooms` is what the hosts have left without the pod."""
        totals = {
            name: score_host(self._capacities[name], rooms[name], request) + (extender_scores or {}).get(name, 0)
            for name in names
        }
        highest = max(totals.values())
        return self._random.choice([name for name in names if totals[name] == highest])


def count_wanted_nodes(nodes: int) -> int:
    """How many feasible nodes end the search."""
    if nodes < MIN_FEASIBLE_NODES:
        return nodes
    percentage = max(MIN_PERCENTAGE, 50 - nodes // 125)
    return max(MIN_FEASIBLE_NODES, nodes * percentage // 100)


def score_host(capacity: HostResources, room: HostResources, request: HostResources) -> int:
    """The sum of both plug-ins, 0 to 200."""
    asked = [each or default for each, default in zip(request, NO_REQUEST, strict=True)]
    left = [max(0, have - take) for have, take in zip(room, asked, strict=True)]
    fractions = [each / total if total else 0.0 for each, total in zip(left, capacity, strict=True)]
    least_allocated = sum(int(MAX_SCORE * each) for each in fractions) // len(fractions)
    balanced = int(MAX_SCORE * (1 - abs(fractions[0] - fractions[1]) / 2))
    return least_allocated + balanced
