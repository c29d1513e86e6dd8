"""What 1,000 (and 5,000) GPU pods that fit nowhere cost all other pods: CPU pods come 10 a second, and are timed until they are bound.

A pod that an extender refused comes back with nearly every event, so each bound CPU pod sends all of them through the
scheduler again. The refused pods fit only by what the scheduler counts, node totals: every card holds 9 of 16 units, and
they ask for 8.

A scheduler holds a refused pod back for 1 s, twice as long each time, 10 s at most. While those times are short, a
thousand pods come before each CPU pod, whatever the extender does; that takes some seconds and is shown as the time in which
it settles. Then the refused pods come only while no other pod waits, and a CPU pod waits for one of them, which is what the
goal is about. For comparison it shows the recommended install, where CPU pods have their own scheduler, and an extender that
refuses at once without any work, which leaves only the scheduler's own cost.

A pod's time starts when its creation is due: delays of the stream count as waiting, and a stream that falls a second behind
is an error, not a smaller load. It says nothing about a cluster in which cards become free meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.cpu_meter import CpuMeter, CpuUsage
from benchmarks.live_cluster import (
    ApiServerClient,
    BoundPodWatch,
    add_nodes,
    collect_pids,
    delete_pods,
    run_control_plane,
    send_calls,
)
from benchmarks.live_programs import (
    GPU_SCHEDULER,
    PLAIN_CONFIGURATION,
    PLAIN_SCHEDULER,
    read_own_scheduler_config,
    read_second_scheduler_config,
    run_idle_extender,
    run_our_extender,
    run_scheduler,
)
from benchmarks.options import BenchmarkOptions
from benchmarks.percentiles import compute_percentile
from benchmarks.scheduler_rate import build_stale_row, read_stale_binding_percent
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.verb_calls import read_metric
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, pod_manifest

log = logging.getLogger(__name__)

COMMAND = "python -m benchmarks storm"
NODE_COUNT, REFUSED_POD_COUNT, MEASURED_SECONDS = 50, 1000, 20
MANY_REFUSED_PODS = 5000
CARDS_PER_NODE = 8
HELD_UNITS, ASKED_UNITS = 9, 8
"""Units held of the 16 on every card: 7 stay free, 56 on a node."""
CPU_PODS_PER_SECOND = 10
INTERVAL_SECONDS = 1 / CPU_PODS_PER_SECOND
LATE_SECONDS = 1.0
"""A slow call is no problem, as the time counts from when a pod was due; but ten pods behind is a different load."""
REFUSALS_UNTIL_SETTLED = 6
"""After 1, 2, 4 and 8 s the fifth refusal is the first to hold a pod back for 10 s; one more, as pods are not in step."""
TRIES = 3
MAX_STREAM_SECONDS = 120
"""Beside 1,000 refused pods; more take longer to be refused so often."""
STORM_LABEL = "storm"
OUR_REFUSALS = 'vrampack_extender_request_duration_seconds_count{result="no",verb="filter"}'
IDLE_REFUSALS = "idle_filtered_total"


@dataclass(frozen=True, slots=True)
class StormSetup:
    """One setup: what schedules, and what refuses."""

    key: str
    description: str
    start_extender: Callable[[ControlPlane], AbstractContextManager[ExtenderProgram]]
    refusal_metric: str
    """The extender's counter of refusals."""
    has_cpu_scheduler: bool = False
    """Whether CPU pods have their own scheduler."""
    goal_ms: float | None = None
    floor_ms: float | None = None
    refused_pods: int = REFUSED_POD_COUNT


def _run_refusing_extender(cluster: ControlPlane) -> AbstractContextManager[ExtenderProgram]:
    return run_idle_extender(cluster, "--refuse")


SETUPS = (
    StormSetup("one", "one scheduler for all", run_our_extender, OUR_REFUSALS, goal_ms=100, floor_ms=150),
    StormSetup("two", "the recommended second scheduler", run_our_extender, OUR_REFUSALS, has_cpu_scheduler=True),
    StormSetup("idle", "one scheduler, an extender that only refuses", _run_refusing_extender, IDLE_REFUSALS),
    StormSetup(
        str(MANY_REFUSED_PODS),
        f"one scheduler for all, {MANY_REFUSED_PODS:,} refused pods",
        run_our_extender,
        OUR_REFUSALS,
        goal_ms=150,
        floor_ms=225,
        refused_pods=MANY_REFUSED_PODS,
    ),
)


@dataclass(frozen=True, slots=True)
class StormResult:
    """How long CPU pods took, in ms, while it settled and afterwards; the other fields are about afterwards."""

    settling_ms: list[float]
    settled_ms: list[float]
    refusal_count: float
    cpu_usage: CpuUsage


def measure_rows(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """Measure on a separate control plane."""
    with run_control_plane() as cluster:
        yield from measure_rows_on(cluster, options)


def measure_rows_on(cluster: ControlPlane, options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """All setups, one after another. The cluster must be empty at first."""
    yield fill_cards(cluster, options.scale_count(NODE_COUNT))
    for shape in SETUPS:
        yield from _build_rows(shape, measure_storm(cluster, shape, options))


def fill_cards(cluster: ControlPlane, nodes: int) -> BenchmarkRow:
    """Fill every card with one pod, placed by the extender itself. The row says how many Bindings were sent twice."""
    add_nodes(cluster, nodes)
    count = nodes * CARDS_PER_NODE
    send_calls(cluster, [("POST", PODS, pod_manifest(f"holds-{number}", HELD_UNITS)) for number in range(count)])
    with (
        run_our_extender(cluster) as extender,
        BoundPodWatch(cluster) as watch,
        run_scheduler(cluster, read_second_scheduler_config(cluster), extender),
    ):
        cluster.wait_until(
            lambda: watch.bound_count == count, 120, what=lambda: f"bound: {watch.bound_count} of {count}"
        )
        percent = read_stale_binding_percent(extender, count)
    return build_stale_row("storm-stale", "while the cluster filled", COMMAND, [percent])


def measure_storm(cluster: ControlPlane, setup: StormSetup, options: BenchmarkOptions) -> StormResult:
    """Create refused pods, then CPU pods until it has settled, then the CPU pods that count.

    It is tried again, twice at most, while the machine is too busy to keep up the stream of CPU pods.
    """
    for _ in range(TRIES - 1):
        try:
            return _measure_storm_once(cluster, setup, options)
        except TimeoutError as error:
            log.warning("storm not measured setup=%s error=%s", setup.key, error)
            delete_pods(cluster, label=STORM_LABEL)
    return _measure_storm_once(cluster, setup, options)


def _measure_storm_once(cluster: ControlPlane, setup: StormSetup, options: BenchmarkOptions) -> StormResult:
    """Raises `TimeoutError` where the stream of CPU pods fell behind."""
    refused = options.scale_count(setup.refused_pods)
    seconds = options.scale_count(MEASURED_SECONDS, minimum=2)
    with ExitStack() as stack:
        extender = stack.enter_context(setup.start_extender(cluster))
        configuration = (
            read_second_scheduler_config(cluster) if setup.has_cpu_scheduler else read_own_scheduler_config()
        )
        ours = stack.enter_context(run_scheduler(cluster, configuration, extender))
        of = collect_pids(cluster) | {"scheduler": ours.pid, "extender": extender.process.pid}
        if setup.has_cpu_scheduler:
            of["plain"] = stack.enter_context(run_scheduler(cluster, PLAIN_CONFIGURATION)).pid
        watch = stack.enter_context(BoundPodWatch(cluster))
        caller = stack.enter_context(closing(ApiServerClient(cluster)))
        stream = CpuPodStream(cluster, caller, watch, PLAIN_SCHEDULER if setup.has_cpu_scheduler else GPU_SCHEDULER)
        _create_refused_pods(cluster, refused)
        enough = refused * options.scale_count(REFUSALS_UNTIL_SETTLED, minimum=2)
        settling = stream.run_stream(
            lambda: read_metric(extender, setup.refusal_metric) >= enough,
            MAX_STREAM_SECONDS * setup.refused_pods / REFUSED_POD_COUNT,
        )
        before, meter = read_metric(extender, setup.refusal_metric), CpuMeter(of)
        ends = time.monotonic() + seconds
        settled = stream.run_stream(lambda: time.monotonic() >= ends)
        storm = StormResult(settling, settled, read_metric(extender, setup.refusal_metric) - before, meter.read_usage())
    if not storm.refusal_count:
        raise RuntimeError(f"{setup.key}: no pod was refused while the CPU pods that count came, so there was no storm")
    delete_pods(cluster, label=STORM_LABEL)
    return storm


class CpuPodStream:
    """Creates CPU pods for one scheduler, at a fixed pace whatever happens to earlier ones."""

    def __init__(
        self, cluster: ControlPlane, caller: ApiServerClient, watch: BoundPodWatch, scheduler_name: str
    ) -> None:
        self._cluster = cluster
        self._caller = caller
        self._watch = watch
        self._scheduler_name = scheduler_name
        self._count = 0

    def run_stream(self, is_finished: Callable[[], bool], max_seconds: float = MAX_STREAM_SECONDS) -> list[float]:
        """Run until `is_finished`, with at least one pod. Returns how long each took to be bound, in ms, once all are bound.

        Raises `TimeoutError` if it is never finished, or if the stream cannot keep its pace.
        """
        began = time.monotonic()
        due: dict[str, float] = {}
        while not due or not is_finished():
            at = began + len(due) * INTERVAL_SECONDS
            if at > began + max_seconds:
                raise TimeoutError(f"not enough within {max_seconds:.0f} s")
            _wait_until(at)
            name = f"cpu-{self._count + len(due)}"
            due[name] = at
            self._caller.send_request("POST", PODS, _build_cpu_pod(name, self._scheduler_name))
        self._count += len(due)
        self._cluster.wait_until(lambda: self._watch.bound_count == self._count, 60, what="every CPU pod is bound")
        bound = self._watch.read_bind_times()
        return [1000 * (bound[name] - at) for name, at in due.items()]


def _wait_until(due: float) -> None:
    """Sleep until `due`. Raises `TimeoutError` if that was long ago, as the load would be less than the row says."""
    ahead = due - time.monotonic()
    if ahead < -LATE_SECONDS:
        raise TimeoutError(
            f"the stream of CPU pods is {-ahead:.1f} s behind: the API server takes too long to create one"
        )
    if ahead > 0:
        threading.Event().wait(ahead)


def _create_refused_pods(cluster: ControlPlane, count: int) -> None:
    """Create pods and wait until the scheduler has refused each and written that, so that it has nothing left to write."""
    names = [f"waits-{number}" for number in range(count)]
    send_calls(cluster, [("POST", PODS, pod_manifest(name, ASKED_UNITS, labels={STORM_LABEL: ""})) for name in names])
    with closing(ApiServerClient(cluster)) as caller:
        for name in names:
            cluster.wait_until(partial(_is_refused, caller, name), 120, what=f"{name} is refused")


def _is_refused(caller: ApiServerClient, name: str) -> bool:
    return b'"PodScheduled"' in caller.send_request("GET", f"{PODS}/{name}")


def _build_cpu_pod(name: str, scheduler_name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "example.com/plain:1", "resources": {"requests": {"cpu": "10m"}}}
    spec = {"schedulerName": scheduler_name, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"metadata": {"name": name, "labels": {STORM_LABEL: ""}}, "spec": spec}


def _build_rows(shape: StormSetup, storm: StormResult) -> Iterator[BenchmarkRow]:
    where = f"CPU pods bound beside a storm of refused pods, {shape.description}"
    key = f"storm-{shape.key}"
    settled, settling = storm.settled_ms, storm.settling_ms
    worst = f"longest {max(settled):.0f} ms of {len(settled)} pods; {_format_cost(storm)}"
    p99 = compute_percentile(settled, 0.99)
    yield BenchmarkRow(f"{key}-p50", f"{where}: p50", COMMAND, compute_percentile(settled, 0.5), "ms", None, None)
    yield BenchmarkRow(f"{key}-p99", f"{where}: p99", COMMAND, p99, "ms", shape.goal_ms, shape.floor_ms, note=worst)
    while_settling = f"p50 {compute_percentile(settling, 0.5):.0f} ms, {len(settling) / CPU_PODS_PER_SECOND:.0f} s"
    longest = max(settling)
    yield BenchmarkRow(
        f"{key}-settling", f"{where}: longest while it settles", COMMAND, longest, "ms", None, None, note=while_settling
    )


def _format_cost(storm: StormResult) -> str:
    rate = storm.refusal_count / storm.cpu_usage.wall_seconds
    each = {
        name: 1000 * storm.cpu_usage.seconds_by_process[name] / storm.refusal_count
        for name in ("scheduler", "extender")
    }
    spent = ", ".join(f"{name} {cost:.2f}" for name, cost in each.items())
    return f"{rate:.0f} refusals/s, CPU ms each: {spent}; others kept {storm.cpu_usage.other_cores:.1f} cores busy"
