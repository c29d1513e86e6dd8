"""The most frequent answer to a scheduler with a thousand pending pods: a repeated rejection.

Every event of a cluster makes a scheduler retry refused pods, so a rejection must be the cheapest answer of all, or other
pods wait behind ours. It measures filter on 1,000 full nodes, with the same pod and the names in another order each time, back
to back, with nothing changed in between: from the moment the event loop hands over the last byte of the request until the reply
is written to the socket, inside the real service (`stopwatch.py`), and the round trip as the client sees it. It does not tell
what a storm does to pods that could be bound: the group `storm` does.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.cluster_objects import BenchmarkCluster, build_requesting_pod, encode_json
from benchmarks.http_caller import HttpCaller, HttpReply
from benchmarks.measured_extender import URL_PREFIX, ListPages, run_measured_extender
from benchmarks.options import BenchmarkOptions
from benchmarks.percentiles import compute_median, compute_percentile

NODES = 1000
PODS = 4000
CALLS = 2000
WARM_UP = 200
COMMAND = "python -m benchmarks no"


def measure_rows(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """Measure the time in the service, and what the client sees."""
    cluster = BenchmarkCluster(
        options.scale_count(NODES), options.scale_count(PODS), pending=1, full_share=1, seed=options.seed
    )
    warm_up = options.scale_count(WARM_UP)
    with tempfile.TemporaryDirectory(prefix="vrampack-bench-") as folder:
        file = Path(folder) / "times.json"
        with run_measured_extender(
            ListPages.from_cluster(cluster), command=(sys.executable, "-m", "benchmarks.stopwatch", str(file))
        ) as subject:
            cpu = subject.read_cpu_seconds()
            replies = _send_filters(subject.port, cluster, warm_up + options.scale_count(CALLS), options.seed)
            cpu = (subject.read_cpu_seconds() - cpu) / len(replies)
        verbs = json.loads(file.read_text())
    assert len(verbs) == len(replies), f"{len(verbs)} answers were timed, {len(replies)} were received"
    replies, verbs = replies[warm_up:], verbs[warm_up:]
    written = [verb["written"] / 1000 for verb in verbs]
    writing = compute_median([verb["writing"] / 1000 for verb in verbs])
    what = f"a repeated no, {NODES:,} names"
    note = f"{writing:.0f} us until the write begins; {cpu * 1e6:.0f} us CPU of the extender"
    yield BenchmarkRow("no-1000-p50", f"{what}, p50", COMMAND, compute_median(written), "us", 90, 130, note=note)
    yield BenchmarkRow("no-1000-p99", f"{what}, p99", COMMAND, compute_percentile(written, 0.99), "us", None, None)
    trip = compute_median([reply.seconds for reply in replies]) * 1e6
    yield BenchmarkRow("no-1000-client-p50", f"{what}, at the client, p50", COMMAND, trip, "us", None, None)
    note = (
        f"{max(reply.segment_count for reply in replies)} segments and {max(reply.read_count for reply in replies)} reads at the "
        f"client, {sum(verb['unsent_bytes'] > 0 for verb in verbs)} answers not sent at once; of {len(replies)}"
    )
    writes = max(verb["writes"] for verb in verbs)
    yield BenchmarkRow(
        "no-1000-writes", f"{what}, writes for an answer", COMMAND, writes, "writes", None, None, note=note
    )


def _send_filters(port: int, cluster: BenchmarkCluster, calls: int, seed: int) -> list[HttpReply]:
    chance = random.Random(seed)
    pod = encode_json(build_requesting_pod("pending-0", 8))
    names = [encode_json(name) for name in cluster.list_node_names()]
    bodies = []
    for _ in range(calls):
        chance.shuffle(names)
        bodies.append(b'{"Pod":%b,"Nodes":null,"NodeNames":[%b]}' % (pod, b",".join(names)))
    with HttpCaller(port) as caller:
        replies = [caller.send_post(f"{URL_PREFIX}/filter", body) for body in bodies]
    for reply in replies:
        said = json.loads(reply.body)
        assert not said["Error"], said["Error"]
        assert not said["NodeNames"], "a full cluster passed a node"
    return replies
