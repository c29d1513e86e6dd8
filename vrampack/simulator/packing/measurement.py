"""Runs the benchmarks for many policies and seeds, each run in its own process, and collects the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Literal, TypeVar

from policies.policy import Policy
from policies.registry import POLICIES
from vrampack.cards.host_room import HostResources
from vrampack.cards.tuned_policy import TunedPolicy
from vrampack.simulator.packing import card_benchmark, openb_protocol
from vrampack.simulator.packing.http_cluster import HttpCluster
from vrampack.simulator.packing.packed_cluster import PackedCluster, SchedulerPlacedCluster, SimulatedNode, SimulatedPod
from vrampack.simulator.packing.study_clusters import STUDY_CLUSTERS
from vrampack.simulator.packing.study_policies import STUDY_POLICIES
from vrampack.simulator.packing.trace_files import (
    read_card_cluster,
    read_openb_nodes,
    read_openb_pods,
    read_request_mix,
)

MixMode = Literal["given", "learned"]
CardTest = Literal["fill", "churn"]
Through = Literal["engine", "scheduler", "http"]
"""engine: the policy places every pod, as in the study. scheduler: kube-scheduler's plug-ins place pods without cards. http: the
same, and the extender's program places the others over HTTP, among the nodes that a scheduler considers."""

SIMULATED_POLICIES: dict[str, Policy] = {**POLICIES, **STUDY_POLICIES}
"""The policies of the product and of the FGD study."""
EXACT_HOSTS = HostResources(1, 1)
"""The study's policies see exact CPU and memory; the product's see them rounded, as in a cluster."""
PRODUCT_HOSTS = HostResources(500, 1024)
EXACT_POLICIES = frozenset([*STUDY_POLICIES, *STUDY_CLUSTERS, "fragmentation"])
POLICY_NAMES = sorted([*SIMULATED_POLICIES, *STUDY_CLUSTERS])
"""The names of all policies that can be measured."""

FOLLOWED_BY = "+"
"""The separator between the traces of one run."""

Run = TypeVar("Run")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class OpenbRun:
    """One trace, or several in succession (`default+gpushare100`), one policy, one seed."""

    data: Path
    trace: str
    policy: TunedPolicy
    mix: MixMode
    seed: int
    through: Through = "engine"


@dataclass(frozen=True, slots=True)
class CardRun:
    """One test of the GiB benchmark, one policy, one seed."""

    data: Path
    test: CardTest
    cluster: str
    requests: str
    policy: TunedPolicy
    mix: MixMode
    seed: int
    load: float = 0.7
    """Of a churn."""
    has_queue: bool = False
    """Whether pods that do not fit in a churn wait."""


def measure_openb(run: OpenbRun) -> dict[str, float]:
    """Allocation in per cent, by each whole per cent requested; `openb_protocol.READ_AT` are the published ones."""
    nodes = read_openb_nodes(run.data / "openb")
    traces = [read_openb_pods(run.data / "openb", trace) for trace in run.trace.split(FOLLOWED_BY)]
    if run.through == "http":
        with ExitStack() as stack:
            allocation = openb_protocol.run_seed(nodes, traces, run.seed, partial(_open_http_cluster, run, stack))
    else:
        allocation = openb_protocol.run_seed(nodes, traces, run.seed, _choose_cluster(run, chain.from_iterable(traces)))
    return {str(at): round(value, 3) for at, value in sorted(allocation.items())}


def _choose_cluster(run: OpenbRun, pods: Iterable[SimulatedPod]) -> Callable[[Sequence[SimulatedNode]], PackedCluster]:
    build: Callable[..., PackedCluster] = STUDY_CLUSTERS.get(run.policy.name, PackedCluster)
    if run.through == "scheduler":
        build = partial(SchedulerPlacedCluster, random=Random(run.seed))  # noqa: S311 - for a simulation
    return partial(
        build,
        policy=run.policy,
        mix=openb_protocol.count_mix(pods) if run.mix == "given" else None,
        policies=SIMULATED_POLICIES,
        host_step=EXACT_HOSTS if run.policy.name in EXACT_POLICIES else PRODUCT_HOSTS,
    )


def _open_http_cluster(run: OpenbRun, stack: ExitStack, nodes: Sequence[SimulatedNode]) -> HttpCluster:
    cluster = HttpCluster(nodes, run.policy, Random(run.seed))  # noqa: S311 - for a simulation
    stack.callback(cluster.close)
    return cluster


def measure_cards(run: CardRun) -> dict[str, dict[str, float]]:
    """The measures, by the offered load."""
    nodes = read_card_cluster(run.data / "cards", run.cluster)
    weights = read_request_mix(run.data / "cards", run.requests)
    build = partial(
        STUDY_CLUSTERS.get(run.policy.name, PackedCluster),
        policy=run.policy,
        mix=card_benchmark.build_mix(weights) if run.mix == "given" else None,
        policies=SIMULATED_POLICIES,
        host_step=EXACT_HOSTS,
    )
    if run.test == "fill":
        filled = card_benchmark.run_fill(nodes, weights, run.seed, build)
        return {f"{load:g}": asdict(measures) for load, measures in filled.items()}
    churned = card_benchmark.run_churn(nodes, weights, run.load, run.seed, build, has_queue=run.has_queue)
    return {f"{run.load:g}": asdict(churned)}


def map_runs(measure: Callable[[Run], Result], runs: Sequence[Run], jobs: int) -> Iterator[tuple[Run, Result]]:
    """Each run with its result, in the order of the runs; `jobs` processes at a time."""
    if jobs == 1:
        yield from ((run, measure(run)) for run in runs)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from zip(runs, pool.map(measure, runs), strict=True)


def average_results(results: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each figure that all results have."""
    shared = [key for key in results[0] if all(key in result for result in results)]
    return {key: round(fmean(result[key] for result in results), 3) for key in shared}
