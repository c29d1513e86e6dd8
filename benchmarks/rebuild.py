"""How long a restarted extender takes to become ready, on a cluster of 50,000 pods.

The extender rebuilds everything it knows from the API server at every start: 100 pages of 500 pods of 4.5 KB, two in five
of them ours, and 5,000 nodes of 6 KB, all prebuilt bytes over loopback. It measures the time from the first list call
until `/readyz` is 200, as the median of three starts, and the memory that the process then has. It does not tell how
long a real API server takes to build those lists, which is longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.cluster_objects import BenchmarkCluster
from benchmarks.measured_extender import ListPages, run_measured_extender
from benchmarks.options import BenchmarkOptions
from benchmarks.percentiles import compute_median

NODE_COUNT = 5000
OUR_POD_COUNT = 20_000
OTHER_POD_COUNT = 30_000
START_COUNT = 3
COMMAND = "python -m benchmarks rebuild"


@dataclass(frozen=True, slots=True)
class _StartFigures:
    listing_seconds: float
    whole_seconds: float
    cpu_seconds: float
    resident_mb: float
    peak_mb: float


def measure_rows(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """Measure time and memory of a start."""
    cluster = BenchmarkCluster(
        options.scale_count(NODE_COUNT),
        options.scale_count(OUR_POD_COUNT),
        others=options.scale_count(OTHER_POD_COUNT),
        full_share=0.5,
        seed=options.seed,
    )
    pages = ListPages.from_cluster(cluster)
    starts = [_measure_start(pages) for _ in range(options.scale_count(START_COUNT, 1))]
    seconds = [start.listing_seconds for start in starts]
    cpu = compute_median([start.cpu_seconds for start in starts])
    note = f"{_format_figures(seconds)} s; {cpu:.2f} s CPU, imports too"
    what = f"rebuild, {len(pages.pods)} pages of pods, {cluster.nodes:,} nodes"
    yield BenchmarkRow(
        "rebuild-seconds", f"{what}, first list to ready", COMMAND, compute_median(seconds), "s", 2, 3, note=note
    )
    whole = [start.whole_seconds for start in starts]
    yield BenchmarkRow(
        "rebuild-start-seconds",
        f"{what}, start to ready",
        COMMAND,
        compute_median(whole),
        "s",
        None,
        None,
        note=f"{_format_figures(whole)} s",
    )
    resident = [start.resident_mb for start in starts]
    yield BenchmarkRow(
        "rebuild-rss",
        f"{what}, resident",
        COMMAND,
        compute_median(resident),
        "MB",
        200,
        300,
        note=f"{_format_figures(resident)} MB",
    )
    yield BenchmarkRow(
        "rebuild-peak-rss",
        f"{what}, resident at most",
        COMMAND,
        compute_median([start.peak_mb for start in starts]),
        "MB",
        None,
        None,
    )


def _measure_start(pages: ListPages) -> _StartFigures:
    with run_measured_extender(pages) as subject:
        return _StartFigures(
            listing_seconds=subject.ready_at - subject.api.first_call_at,
            whole_seconds=subject.ready_at - subject.started_at,
            cpu_seconds=subject.read_cpu_seconds(),
            resident_mb=subject.read_memory_mb("VmRSS"),
            peak_mb=subject.read_memory_mb("VmHWM"),
        )


def _format_figures(figures: list[float]) -> str:
    return ", ".join(f"{figure:.2f}" for figure in figures)
