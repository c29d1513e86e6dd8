"""How many pods a second the policies, the engine and the ledger place together, and how much memory that takes.

The input is a trace of a production cluster, tiled twelve times: 14,556 nodes with 74,544 cards, empty at the start, and 84,768
pods that ask for cards, in random order; the default policy is given their mix. Each decision ranks all nodes, chooses the cards,
counts them in the ledger and takes CPU and memory of the host. Nodes are summarized ahead, as the service does before it is ready;
no request has been seen before. The figure is the CPU time of one process, garbage collection included. It does not tell what HTTP
and JSON cost: the group `verbs` does.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.options import BenchmarkOptions
from extender.garbage_collection import choose_generation, freeze_objects
from extender.policy_settings import PolicyTuning
from policies.registry import POLICIES
from vrampack.cards.host_room import HostResources
from vrampack.simulator.packing.openb_protocol import count_mix, rename_nodes
from vrampack.simulator.packing.packed_cluster import PackedCluster, SimulatedNode, SimulatedPod
from vrampack.simulator.packing.trace_files import read_openb_nodes, read_openb_pods

TILES = 12
POLICY = PolicyTuning().tuned_default
DATA = Path(__file__).parent / "data" / "openb"
DECISIONS_PER_PAUSE = 100
"""The service checks every 20 ms whether to collect garbage."""
COMMAND = "python -m benchmarks packing"


def measure_rows(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """Measure pace and memory in a separate process."""
    arguments = [str(options.seed), str(options.shrink)]
    told = subprocess.run(  # noqa: S603 - fixed arguments
        [sys.executable, "-m", "benchmarks.packing_rate", *arguments], stdout=subprocess.PIPE, check=True, text=True
    ).stdout
    figures = json.loads(told)
    what = f"decisions of {POLICY.name}, 14,556 nodes"
    note = f"{figures['placed']} of {figures['pods']} placed; the worst decision {figures['worst_ms']:.0f} ms"
    yield BenchmarkRow(
        "packing-rate", what, COMMAND, figures["rate"], "1/s", 5000, 3333, larger_is_better=True, note=note
    )
    yield BenchmarkRow("packing-rss", f"{what}: memory, at most", COMMAND, figures["peak_mb"], "MB", 450, 675)
    start = figures["start_seconds"]
    yield BenchmarkRow("packing-start", "the same: summarizing all nodes ahead", COMMAND, start, "s", None, None)


def measure_rate(seed: int, shrink: int) -> dict[str, float]:
    """The figures of one run in this process."""
    chance = Random(seed)
    nodes, pods = _build_cluster(shrink, chance)
    cluster = PackedCluster(nodes, POLICY, count_mix(pods), policies=POLICIES, host_step=HostResources(500, 1024))
    began = time.process_time()
    cluster.follow_nodes()
    start_seconds = time.process_time() - began
    freeze_objects()
    placed, worst = 0, 0.0
    began = before = time.process_time()
    for position, pod in enumerate(pods):
        placed += cluster.place_pod(f"pod-{position}", pod) is not None
        now = time.process_time()
        worst, before = max(worst, now - before), now
        if position % DECISIONS_PER_PAUSE == 0:
            _collect_garbage()
            before = time.process_time()
    rate = len(pods) / (time.process_time() - began)
    return {
        "rate": rate,
        "start_seconds": start_seconds,
        "peak_mb": _read_peak_mb(),
        "worst_ms": worst * 1000,
        "placed": placed,
        "pods": len(pods),
    }


def _build_cluster(shrink: int, chance: Random) -> tuple[list[SimulatedNode], list[SimulatedPod]]:
    nodes = read_openb_nodes(DATA)[::shrink]
    pods = [pod for pod in read_openb_pods(DATA, "default") if pod.cards is not None][::shrink]
    tiled = [node._replace(name=f"{tile:02}-{node.name}") for tile in range(TILES) for node in nodes]
    arrivals = pods * TILES
    chance.shuffle(arrivals)
    return rename_nodes(tiled, chance), arrivals


def _collect_garbage() -> None:
    generation = choose_generation(*gc.get_count())
    if generation is not None:
        gc.collect(generation)


def _read_peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure_rate(int(sys.argv[1]), int(sys.argv[2]))))
