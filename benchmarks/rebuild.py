"""How long a dead extender is missed: from nothing to ready, on a cluster of 50,000 pods.

Everything the extender knows is rebuilt from the API server at every start: 100 pages of 500 pods of 4.5 KB, two in five
of them ours, and 5,000 nodes of 6 KB, all prebuilt bytes over loopback. Measured is the time from the first list call
until `/readyz` is 200, in the middle of three starts, and the memory that the process then has. It does not tell how
long a real API server takes to make those lists, which is longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.figures import median
from benchmarks.objects import Cluster
from benchmarks.options import Options
from benchmarks.rows import Row
from benchmarks.subject import Pages, serving

NODES = 5000
OURS = 20_000
OTHERS = 30_000
STARTS = 3
COMMAND = "python -m benchmarks rebuild"


@dataclass(frozen=True, slots=True)
class _Start:
    listing_seconds: float
    whole_seconds: float
    cpu_seconds: float
    resident_mb: float
    peak_mb: float


def rows(options: Options) -> Iterator[Row]:
    """Time and memory of a start."""
    cluster = Cluster(
        options.sized(NODES), options.sized(OURS), others=options.sized(OTHERS), full_share=0.5, seed=options.seed
    )
    pages = Pages.of(cluster)
    starts = [_start(pages) for _ in range(STARTS)]
    seconds = [start.listing_seconds for start in starts]
    cpu = median([start.cpu_seconds for start in starts])
    note = f"{_all(seconds)} s; {cpu:.2f} s CPU, imports too"
    what = f"rebuild, {len(pages.pods)} pages of pods, {cluster.nodes:,} nodes"
    yield Row("rebuild-seconds", f"{what}, first list to ready", COMMAND, median(seconds), "s", 2, 3, note=note)
    whole = [start.whole_seconds for start in starts]
    yield Row(
        "rebuild-start-seconds",
        f"{what}, start to ready",
        COMMAND,
        median(whole),
        "s",
        None,
        None,
        note=f"{_all(whole)} s",
    )
    resident = [start.resident_mb for start in starts]
    yield Row(
        "rebuild-rss", f"{what}, resident", COMMAND, median(resident), "MB", 200, 300, note=f"{_all(resident)} MB"
    )
    yield Row(
        "rebuild-peak-rss",
        f"{what}, resident at most",
        COMMAND,
        median([start.peak_mb for start in starts]),
        "MB",
        None,
        None,
    )


def _start(pages: Pages) -> _Start:
    with serving(pages) as subject:
        return _Start(
            listing_seconds=subject.ready_at - subject.api.first_call,
            whole_seconds=subject.ready_at - subject.started_at,
            cpu_seconds=subject.cpu_seconds(),
            resident_mb=subject.memory_mb("VmRSS"),
            peak_mb=subject.memory_mb("VmHWM"),
        )


def _all(figures: list[float]) -> str:
    return ", ".join(f"{figure:.2f}" for figure in figures)
