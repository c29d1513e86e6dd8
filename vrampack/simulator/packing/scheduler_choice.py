"""What kube-scheduler does by itself: which nodes it considers, and how its own plug-ins score them.

As shipped: `percentageOfNodesToScore` adapts to the size of the cluster, and of the default score plug-ins two tell nodes apart
here: NodeResourcesFit (LeastAllocated) and NodeResourcesBalancedAllocation, both by CPU and memory with weight 1. See
`numFeasibleNodesToFind` in schedule_one.go, least_allocated.go and balanced_allocation.go of Kubernetes 1.36.

Ties are drawn at random: the real scheduler takes the first node that its threads found, or draws if an extender scored. It checks
nodes in several threads, so it may skip some that this code does not. tests/simulator/decisions compares both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from random import Random
from typing import NamedTuple

from vrampack.cards.host_room import HostResources

MIN_FEASIBLE_NODES = 100
MIN_PERCENTAGE = 5
MAX_SCORE = 100
NO_REQUEST = HostResources(100, 200)
"""What LeastAllocated assumes for a pod that asks for nothing: thousandths of a CPU, MiB."""


class ScoredHost(NamedTuple):
    """What a host has, and how much of it is requested, as each of the two plug-ins counts it."""

    capacity: HostResources
    requested: HostResources = HostResources(0, 0)
    counted: HostResources = HostResources(0, 0)
    """Requests, with `NO_REQUEST` for pods that ask for nothing."""
    balance: int = MAX_SCORE
    """Requests as they are."""


class SchedulerChoice:
    """Over hosts of fixed capacity, in the order of their names. `units` is what each has of the extender's resource."""

    def __init__(
        self, capacities: Mapping[str, HostResources], random: Random, units: Mapping[str, int] | None = None
    ) -> None:
        self._hosts = {name: ScoredHost(capacity) for name, capacity in capacities.items()}
        self._rooms = {name: (*capacity, (units or {}).get(name, 0)) for name, capacity in capacities.items()}
        """CPU, memory and units left on each host."""
        self._names = list(capacities)
        self._scores: defaultdict[HostResources, dict[str, int]] = defaultdict(dict)
        """Scores by request, until a host changes."""
        self._random = random
        self._next_start = 0

    def list_feasible_nodes(self, request: HostResources, units: int = 0) -> list[str]:
        """As many feasible nodes as the scheduler looks for, starting where the search for the previous pod stopped.

        It stops at one more than it takes, and begins there with the next pod.
        """
        names, found = self._names, list[str]()
        wanted, start = count_wanted_nodes(len(names)), self._next_start
        for position in chain(range(start, len(names)), range(start)):
            if self.has_room(names[position], request, units):
                if len(found) == wanted:
                    self._next_start = position
                    break
                found.append(names[position])
        return found

    def has_room(self, name: str, request: HostResources, units: int = 0) -> bool:
        free_cpu_milli, free_memory_mib, free_units = self._rooms[name]
        return free_cpu_milli >= request.cpu_milli and free_memory_mib >= request.memory_mib and free_units >= units

    def choose_node(
        self, names: Sequence[str], request: HostResources, extender_scores: Mapping[str, int] | None = None
    ) -> str:
        """The node with the highest total of plug-ins and extender."""
        return self._random.choice(self.list_best_nodes(names, request, extender_scores or {}))

    def list_best_nodes(
        self, names: Sequence[str], request: HostResources, extender_scores: Mapping[str, int]
    ) -> list[str]:
        """The nodes with the highest total, any of which may be chosen."""
        scores = self._scores[request]
        for name in names:
            if name not in scores:
                scores[name] = sum(self.score_node(name, request))
        totals = [scores[name] + extender_scores.get(name, 0) for name in names]
        highest = max(totals)
        return [name for name, total in zip(names, totals, strict=True) if total == highest]

    def score_node(self, name: str, request: HostResources) -> tuple[int, int]:
        """The scores of NodeResourcesFit and NodeResourcesBalancedAllocation."""
        return score_host(self._hosts[name], request)

    def charge_host(self, name: str, request: HostResources, units: int = 0) -> None:
        """A pod was placed there."""
        self._hosts[name] = charge_host(self._hosts[name], request)
        cpu_milli, memory_mib, free_units = self._rooms[name]
        self._rooms[name] = (cpu_milli - request.cpu_milli, memory_mib - request.memory_mib, free_units - units)
        for scores in self._scores.values():
            scores.pop(name, None)


def count_wanted_nodes(nodes: int) -> int:
    """How many feasible nodes end the search."""
    if nodes < MIN_FEASIBLE_NODES:
        return nodes
    percentage = max(MIN_PERCENTAGE, 50 - nodes // 125)
    return max(MIN_FEASIBLE_NODES, nodes * percentage // 100)


def charge_host(host: ScoredHost, request: HostResources) -> ScoredHost:
    """The host with one more pod."""
    requested = _add(host.requested, request)
    return ScoredHost(
        host.capacity,
        requested,
        _add(host.counted, _count_request(request)),
        rate_balance(host.capacity, requested),
    )


def score_host(host: ScoredHost, request: HostResources) -> tuple[int, int]:
    """The scores of LeastAllocated and BalancedAllocation, 0 to 100 each."""
    return (
        rate_emptiness(host.capacity, _add(host.counted, _count_request(request))),
        score_balance(host, request),
    )


def rate_emptiness(capacity: HostResources, counted: HostResources) -> int:
    """The mean of what is left of each, in per cent."""
    left = [max(0, has - taken) * MAX_SCORE // has for has, taken in zip(capacity, counted, strict=True) if has]
    return sum(left) // len(left) if left else 0


def score_balance(host: ScoredHost, request: HostResources) -> int:
    """Above 75 if the pod makes the use of CPU and memory more equal, else at least 50; 0 for a pod that asks for nothing."""
    if not any(request):
        return 0
    gained = rate_balance(host.capacity, _add(host.requested, request)) - host.balance
    return MAX_SCORE // 2 + (MAX_SCORE // 2 + gained) // 2


def rate_balance(capacity: HostResources, requested: HostResources) -> int:
    """100 if equal shares of CPU and memory are requested, 50 if all of one and nothing of the other."""
    shares = [min(1.0, taken / has) for has, taken in zip(capacity, requested, strict=True) if has]
    deviation = abs((shares[0] - shares[1]) / 2) if len(shares) > 1 else 0.0
    return int((1 - deviation) * MAX_SCORE)


def _count_request(request: HostResources) -> HostResources:
    return HostResources(request.cpu_milli or NO_REQUEST.cpu_milli, request.memory_mib or NO_REQUEST.memory_mib)


def _add(one: HostResources, other: HostResources) -> HostResources:
    return HostResources(one.cpu_milli + other.cpu_milli, one.memory_mib + other.memory_mib)
