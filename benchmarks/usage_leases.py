"""What the agents' Leases cost a busy scheduler: the burst and the storm, alternately without and with Leases.

A thousand agents write the measured use of their cards, each to its own Lease once a minute, while the pods of the other two
groups are placed; the extender lists and watches these Leases. The writes come evenly, from one connection of another process,
because real agents spread theirs at random. Rounds without and with Leases alternate on one control plane, so that other load
of the machine affects both, and the median of the rounds' ratios is shown. A ratio of paces says what a user notices, one of CPU
time per pod what it costs. It says nothing about the agents' own cost, which is one request a minute.
"""

from __future__ import annotations

import logging
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import cycle
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from statistics import median
from typing import Self, TypeVar

from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.cpu_meter import CpuMeter
from benchmarks.live_cluster import (
    CARDS_PER_NODE,
    ApiServerClient,
    add_nodes,
    collect_pids,
    run_control_plane,
    send_calls,
)
from benchmarks.live_programs import run_our_extender
from benchmarks.options import BenchmarkOptions
from benchmarks.percentiles import compute_percentile
from benchmarks.scheduler_rate import NODES, PODS_IN_BURST, PodBurst, SchedulerSetup, run_burst
from benchmarks.storm import (
    NODE_COUNT,
    StormResult,
    fill_cards,
    measure_storm,
)
from benchmarks.storm import SETUPS as STORM_SETUPS
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.verb_calls import read_metric
from tests.support.control_plane.access_denials import NAMESPACE
from tests.support.control_plane.cluster import ControlPlane, Json
from vrampack.cards import well_known
from vrampack.cards.card_usage import CardUsage, name_usage_lease, write_usage

log = logging.getLogger(__name__)

COMMAND = "python -m benchmarks leases"
LEASE_COUNT, INTERVAL_SECONDS = 1000, 60
REST_SECONDS = 20
BURST_ROUNDS, STORM_ROUNDS = 6, 3
PACE_GOAL, PACE_FLOOR = 0.95, 0.9
COST_GOAL, COST_FLOOR = 1.05, 1.1
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
Result = TypeVar("Result")
LISTED = 'vrampack_apiserver_requests_total{code="200",resource="leases",verb="list"}'
PROGRAMS = ("scheduler", "extender", "kube-apiserver")


@dataclass(frozen=True, slots=True)
class PairedFigures:
    """The figures of one round, without and with Leases."""

    off: float
    on: float

    @property
    def ratio(self) -> float:
        return self.on / self.off


class LeaseWriters:
    """A context manager: the agents of `count` nodes, each of which writes its Lease once per interval.

    They run in a separate process, as real agents run elsewhere: a thread would compete with the code of this process that
    creates the pods and watches them being bound.
    """

    def __init__(self, cluster: ControlPlane, count: int) -> None:
        context = multiprocessing.get_context("fork")
        self._stopping = context.Event()
        self._written = context.Value("Q", 0)
        self._process = context.Process(
            target=_write_leases, args=(cluster, count, self._stopping, self._written), daemon=True
        )

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._process.join()
        if self._process.exitcode:
            raise RuntimeError("a Lease was not written: what its process said is above")

    @property
    def written_count(self) -> int:
        return int(self._written.value)


def _write_leases(cluster: ControlPlane, count: int, stopping: Event, written: Synchronized[int]) -> None:
    pause, started = INTERVAL_SECONDS / count, time.monotonic()
    names = [f"gpu-{number:04}" for number in range(count)]
    with closing(ApiServerClient(cluster, content_type="application/merge-patch+json")) as caller:
        for turn, name in enumerate(cycle(names)):
            if stopping.wait(max(0.0, started + turn * pause - time.monotonic())):
                return
            caller.send_request("PATCH", f"{LEASES}/{name_usage_lease(name)}", build_lease(name, turn))
            written.value = turn + 1


def build_lease(node_name: str, turn: int) -> Json:
    """A Lease as an agent writes it, with figures that differ each time."""
    cards = {f"{node_name}-{at}": CardUsage(1000 + turn + at, 9000 + turn, turn % 100) for at in range(CARDS_PER_NODE)}
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name_usage_lease(node_name), "annotations": {well_known.USAGE: write_usage(cards)}},
        "spec": {"holderIdentity": node_name, "leaseDurationSeconds": 600, "renewTime": now},
    }


def measure_rows(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """Measure on a separate control plane."""
    with run_control_plane() as cluster:
        yield from measure_rows_on(cluster, options)


def measure_rows_on(cluster: ControlPlane, options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """The burst without and with Leases, then the storm. The cluster must be empty at first."""
    leases = options.scale_count(LEASE_COUNT)
    _create_leases(cluster, leases)
    yield _measure_writes(cluster, leases, seconds=options.scale_count(REST_SECONDS, minimum=2))
    yield from _measure_bursts(cluster, options, leases)
    cluster.reset()
    _create_leases(cluster, leases)
    yield from _measure_storms(cluster, options, leases)


@contextmanager
def run_reading_extender(cluster: ControlPlane) -> Iterator[ExtenderProgram]:
    """Run our extender with the setting to read Leases; at the end, check that it has listed them."""
    with run_our_extender(cluster, reads_usage=True) as extender:
        yield extender
        if not read_metric(extender, LISTED):
            raise RuntimeError("the extender has not listed the Leases")


def _create_leases(cluster: ControlPlane, count: int) -> None:
    send_calls(cluster, [("POST", LEASES, build_lease(f"gpu-{number:04}", 0)) for number in range(count)])


def _measure_writes(cluster: ControlPlane, leases: int, *, seconds: int) -> BenchmarkRow:
    """The CPU time that a write costs all programs together, on an idle cluster: the time with writes minus that without."""
    with run_reading_extender(cluster) as extender:
        pids = collect_pids(cluster) | {"extender": extender.process.pid}
        rest = CpuMeter(pids)
        threading.Event().wait(seconds)
        without = rest.read_usage()
        with LeaseWriters(cluster, leases) as writers:
            meter = CpuMeter(pids)
            threading.Event().wait(seconds)
            beside, count = meter.read_usage(), writers.written_count
    costs = {
        name: 1000 * (beside.seconds_by_process[name] - without.seconds_by_process[name]) / count
        for name in ("kube-apiserver", "etcd", "extender")
    }
    each = ", ".join(f"{name} {cost:.2f}" for name, cost in costs.items())
    return BenchmarkRow(
        "leases-write-cpu",
        "CPU time of a Lease's write and of its watch event",
        COMMAND,
        sum(costs.values()),
        "ms",
        None,
        None,
        note=f"{each}; {count} writes in {seconds} s",
    )


def _measure_bursts(cluster: ControlPlane, options: BenchmarkOptions, leases: int) -> Iterator[BenchmarkRow]:
    add_nodes(cluster, options.scale_count(NODES))
    off = SchedulerSetup("off", "without Leases", run_our_extender, "prioritize")
    on = replace(off, key="on", description="with Leases", start_extender=run_reading_extender)
    pods = options.scale_count(PODS_IN_BURST)

    def run_round(at: int) -> tuple[PodBurst, PodBurst]:
        return _run_in_turn(
            cluster, leases, at, lambda reads_usage: run_burst(cluster, on if reads_usage else off, pods)
        )

    rounds = [run_round(at) for at in range(options.scale_count(BURST_ROUNDS, minimum=1))]
    paces = [PairedFigures(without.pods_per_second, beside.pods_per_second) for without, beside in rounds]
    yield _build_row("leases-burst-pace", "pace of a burst", paces, "pods/s", PACE_GOAL, PACE_FLOOR)
    costs = [PairedFigures(_sum_cost(without), _sum_cost(beside)) for without, beside in rounds]
    yield _build_row("leases-burst-cpu", "CPU time per pod of a burst", costs, "ms", COST_GOAL, COST_FLOOR)


def _measure_storms(cluster: ControlPlane, options: BenchmarkOptions, leases: int) -> Iterator[BenchmarkRow]:
    fill_cards(cluster, options.scale_count(NODE_COUNT))
    off = STORM_SETUPS[0]
    on = replace(off, start_extender=run_reading_extender)

    def run_storm(reads_usage: bool) -> StormResult:  # noqa: FBT001 - the turn
        return measure_storm(cluster, on if reads_usage else off, options)

    def run_round(at: int) -> tuple[StormResult, StormResult]:
        return _run_in_turn(cluster, leases, at, run_storm)

    rounds = [run_round(at) for at in range(options.scale_count(STORM_ROUNDS, minimum=1))]
    for name, fraction in (("p50", 0.5), ("p99", 0.99)):
        waits = [
            PairedFigures(
                compute_percentile(without.settled_ms, fraction), compute_percentile(beside.settled_ms, fraction)
            )
            for without, beside in rounds
        ]
        what = f"CPU pods beside a storm, {name}"
        yield _build_row(
            f"leases-storm-{name}", what, waits, "ms", *((COST_GOAL, COST_FLOOR) if name == "p50" else (None, None))
        )
    costs = [PairedFigures(_sum_storm_cost(without), _sum_storm_cost(beside)) for without, beside in rounds]
    yield _build_row("leases-storm-cpu", "CPU time per refusal", costs, "ms", COST_GOAL, COST_FLOOR)


def _run_in_turn(
    cluster: ControlPlane, leases: int, at: int, measure: Callable[[bool], Result]
) -> tuple[Result, Result]:
    """Measure without and with Leases, in alternating order from round to round."""
    results: dict[bool, Result] = {}
    for reads_usage in (False, True) if at % 2 == 0 else (True, False):
        writers: AbstractContextManager[LeaseWriters | None] = (
            LeaseWriters(cluster, leases) if reads_usage else nullcontext()
        )
        with writers as running:
            results[reads_usage] = measure(reads_usage)
            log.info("measured round=%d leases=%s figures=%s", at, reads_usage, results[reads_usage])
            if running is not None and running.written_count == 0:
                raise RuntimeError("no Lease was written while the pods were placed")
    return results[False], results[True]


def _sum_cost(burst: PodBurst) -> float:
    return sum(burst.cpu_ms_per_pod(name) for name in PROGRAMS)


def _sum_storm_cost(storm: StormResult) -> float:
    return 1000 * sum(storm.cpu_usage.seconds_by_process[name] for name in PROGRAMS) / storm.refusal_count


def _build_row(
    key: str, what: str, rounds: Sequence[PairedFigures], unit: str, goal: float | None, floor: float | None
) -> BenchmarkRow:
    pairs = ", ".join(f"{each.off:.3g} -> {each.on:.3g}" for each in rounds)
    return BenchmarkRow(
        key,
        f"{what}, with Leases by without",
        COMMAND,
        median(each.ratio for each in rounds),
        "x",
        goal,
        floor,
        larger_is_better=key.endswith("pace"),
        note=f"{unit}, each round: {pairs}",
    )
