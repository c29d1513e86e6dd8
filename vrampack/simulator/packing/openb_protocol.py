"""The protocol of the FGD study: pods of a trace arrive in random order until 1.3 times the cluster's cards are requested.

No pod ever leaves, and a pod that does not fit is lost. The allocation at X % is the mean over all arrivals at which the share of
the cluster's cards that has been requested rounds to X. Nodes are renamed at random for each seed, because names break ties. The
random streams are not those of the artefact, so single seeds differ but means do not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Protocol

from policies.mix.request_mix import MixedRequest, RequestMix, count_requests
from vrampack.simulator.packing.packed_cluster import SimulatedNode, SimulatedPod

TUNE = 1.3
"""How much is requested in all, as a share of the cluster."""
READ_AT = (95, 100, 130)
"""The published points, in per cent of the cluster's cards requested."""


class PodPlacer(Protocol):
    """A cluster that takes pods one by one."""

    def place_pod(self, uid: str, pod: SimulatedPod, /) -> str | None:
        """The node on which the pod was placed; None if it did not fit."""
        ...


def count_mix(pods: Iterable[SimulatedPod]) -> RequestMix:
    """The mix of a whole trace, which the published policy is given."""
    return count_requests(MixedRequest(pod.cards, pod.host) for pod in pods)


def rename_nodes(nodes: Sequence[SimulatedNode], random: Random) -> list[SimulatedNode]:
    """The nodes, with their names shuffled."""
    order = list(range(len(nodes)))
    random.shuffle(order)
    width = len(str(len(nodes)))
    return [node._replace(name=f"{at:0{width}}-{node.name}") for at, node in zip(order, nodes, strict=True)]


def draw_arrivals(traces: Sequence[Sequence[SimulatedPod]], limit_units: float, random: Random) -> list[SimulatedPod]:
    """The pods of one trace after those of another, each in random order, then random pods of all traces.

    It ends before the pod that would exceed the limit; if the traces alone exceed it, their last pods are left out.
    """
    arrivals = [pod for trace in traces for pod in random.sample(trace, len(trace))]
    pods = [pod for trace in traces for pod in trace]
    asked = sum(pod.units for pod in arrivals)
    while asked > limit_units:
        asked -= arrivals.pop().units
    while asked + (drawn := random.choice(pods)).units <= limit_units:
        arrivals.append(drawn)
        asked += drawn.units
    return arrivals


def run_seed(
    nodes: Sequence[SimulatedNode],
    traces: Sequence[Sequence[SimulatedPod]],
    seed: int,
    build_cluster: Callable[[Sequence[SimulatedNode]], PodPlacer],
) -> Mapping[int, float]:
    """Allocation in per cent of the cluster's cards, by the per cent of them that have been asked for.

    Several traces arrive in succession, so the mix drifts.
    """
    random = Random(seed)  # noqa: S311 - for a simulation
    total = sum(sum(node.card_units) for node in nodes)
    arrivals = draw_arrivals(traces, TUNE * total, random)
    cluster = build_cluster(rename_nodes(nodes, random))
    read: defaultdict[int, list[float]] = defaultdict(list)
    for asked, allocated in _place_arrivals(cluster, arrivals):
        read[round(100 * asked / total)].append(100 * allocated / total)
    return {at: sum(values) / len(values) for at, values in read.items()}


def _place_arrivals(cluster: PodPlacer, arrivals: Sequence[SimulatedPod]) -> Iterator[tuple[int, int]]:
    asked = allocated = 0
    for position, pod in enumerate(arrivals):
        asked += pod.units
        if cluster.place_pod(f"pod-{position}", pod) is not None:
            allocated += pod.units
        yield asked, allocated
