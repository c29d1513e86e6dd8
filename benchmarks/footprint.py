"""What the extender needs on clusters of 100, 1,000 and 5,000 nodes: memory, and a core's time while nothing happens.

Ten pods a node, four of them ours, in pages as of `rebuild`. From these figures come the requests and limits of the manifests and the
table of docs/install.md. It does not tell what a busy cluster costs: that is CPU per pod, which `scheduler` measures.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.cluster_objects import BenchmarkCluster
from benchmarks.measured_extender import ListPages, run_measured_extender
from benchmarks.options import BenchmarkOptions

NODE_COUNTS = (100, 1000, 5000)
OWN_PODS_PER_NODE, OTHER_PODS_PER_NODE = 4, 6
REST_SECONDS = 20
COMMAND = "python -m benchmarks footprint"


def measure_rows(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """Each size in a process of its own, from its start."""
    for nodes in NODE_COUNTS:
        yield from _measure_size(nodes, options)


def _measure_size(nodes: int, options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    count = options.scale_count(nodes)
    own, others = count * OWN_PODS_PER_NODE, count * OTHER_PODS_PER_NODE
    cluster = BenchmarkCluster(count, own, others=others, full_share=0.5, seed=options.seed)
    seconds = options.scale_count(REST_SECONDS, 1)
    with run_measured_extender(ListPages.from_cluster(cluster)) as subject:
        started = subject.read_cpu_seconds()
        time.sleep(seconds)
        figures = {
            "rss": (subject.read_memory_mb("VmRSS"), "MB"),
            "peak-rss": (subject.read_memory_mb("VmHWM"), "MB"),
            "rest": (100 * (subject.read_cpu_seconds() - started) / seconds, "%"),
        }
    what = {"rss": "resident", "peak-rss": "resident at most", "rest": "of a core at rest"}
    for name, (figure, unit) in figures.items():
        yield BenchmarkRow(
            f"footprint-{nodes}-{name}",
            f"{count:,} nodes, {own + others:,} pods, {what[name]}",
            COMMAND,
            figure,
            unit,
            None,
            None,
        )
