"""A cluster of 15,000 nodes with eight cards each and 150,000 pods: start, memory, a busy watch, and a scheduler's calls.

All bytes are prebuilt and come over loopback, two pods in five are ours. The busy watch brings 500 pod events a second for 20 s: a
pod of ours goes, and later comes again. The calls are those of the group `verbs`. It does not tell how long a real API
server takes to build such lists.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator

from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.cluster_objects import BenchmarkCluster, encode_event
from benchmarks.measured_extender import ListPages, MeasuredExtender, run_measured_extender
from benchmarks.options import BenchmarkOptions
from benchmarks.percentiles import compute_percentile
from benchmarks.scheduler_load import SchedulerLoad

NODE_COUNT, OUR_POD_COUNT, OTHER_POD_COUNT = 15_000, 60_000, 90_000
EVENTS_PER_SECOND, EVENT_SECONDS, EVENTS_AT_ONCE = 500, 20, 10
CHANGED_NODES = 500
"""On as many nodes pods come and go."""
FIRST_VERSION = 2_000_001
COMMAND = "python -m benchmarks scale"


def measure_rows(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """Measure one extender from its start on."""
    cluster = BenchmarkCluster(
        options.scale_count(NODE_COUNT),
        options.scale_count(OUR_POD_COUNT),
        others=options.scale_count(OTHER_POD_COUNT),
        seed=options.seed,
    )
    what = f"{cluster.nodes:,} nodes, {cluster.pods + cluster.others:,} pods"
    with run_measured_extender(ListPages.from_cluster(cluster)) as subject:
        ready_seconds = subject.ready_at - subject.api.first_call_at
        yield BenchmarkRow("scale-ready", f"{what}, first list to ready", COMMAND, ready_seconds, "s", 6, 9)
        resident = subject.read_memory_mb("VmRSS")
        yield BenchmarkRow("scale-rss", f"{what}, resident", COMMAND, resident, "MB", 450, 675)
        busy = _measure_events(subject, cluster, options)
        rate = f"{EVENTS_PER_SECOND} pod events/s"
        yield BenchmarkRow("scale-events", f"{what}, {rate}, of a core", COMMAND, busy, "%", 15, 22.5)
        times = SchedulerLoad(subject, cluster, options).run_calls()
    for key, share, goal, floor in (("scale-p50", 0.5, None, None), ("scale-p99", 0.99, 9, 13.5)):
        milliseconds = compute_percentile(times.pair_seconds, share) * 1000
        row = f"{what}, filter + prioritize, p{share * 100:.0f}"
        yield BenchmarkRow(key, row, COMMAND, milliseconds, "ms", goal, floor)


def _measure_events(subject: MeasuredExtender, cluster: BenchmarkCluster, options: BenchmarkOptions) -> float:
    """The percentage of a core that the extender uses while pods come and go; all are there again afterwards."""
    chance = random.Random(options.seed)
    # Where they fit with these pods as without them, so the calls that follow need not wait for the last event.
    roomy = [at for at in range(cluster.nodes) if not cluster.is_full(at)]
    nodes = chance.sample(roomy, min(CHANGED_NODES, len(roomy)))
    pods = [pod for at in nodes for pod in cluster.build_node_pods(at)]
    gone: set[int] = set()
    versions = itertools.count(FIRST_VERSION)
    pause = threading.Event()

    def change_pod(number: int) -> bytes:
        kind = "ADDED" if number in gone else "DELETED"
        gone.symmetric_difference_update({number})
        return encode_event(kind, pods[number], next(versions))

    cpu, started = subject.read_cpu_seconds(), time.monotonic()
    for turn in range(options.scale_count(EVENTS_PER_SECOND * EVENT_SECONDS // EVENTS_AT_ONCE)):
        first = turn * EVENTS_AT_ONCE
        subject.api.push_line(
            "pods", b"".join(change_pod(at % len(pods)) for at in range(first, first + EVENTS_AT_ONCE))
        )
        pause.wait(max(0.0, started + (turn + 1) * EVENTS_AT_ONCE / EVENTS_PER_SECOND - time.monotonic()))
    busy = (subject.read_cpu_seconds() - cpu) / (time.monotonic() - started) * 100
    subject.api.push_line("pods", b"".join(map(change_pod, sorted(gone))))
    return busy
