"""What a scheduler waits for: filter and prioritize of one pod, as its client sees them.

It measures the real `vrampack serve` over loopback on one keep-alive connection: both calls, each from before its first
byte is sent until its last byte has arrived. 20,000 pods are in the ledger, the body has every name, in another order each
time, half of the nodes fit, and prioritize names those that filter passed. Between two pods the API server's watch brings
one change (a pod bound, or one gone). One pod in twenty asks for a size that no pod has asked for before.

It matters because a scheduler places one pod after another, so every pod behind waits for these calls. The figures do not
tell what a busy machine adds: client, extender and API server share its cores. The time of the scheduler itself, encoding
and decoding, is in the group `scheduler`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.cluster_objects import BenchmarkCluster, encode_json, format_node_name
from benchmarks.http_caller import HttpCaller
from benchmarks.measured_extender import URL_PREFIX, ListPages, run_measured_extender
from benchmarks.options import BenchmarkOptions
from benchmarks.percentiles import compute_percentile
from benchmarks.scheduler_load import PairTimes, SchedulerLoad

POD_COUNT = 20_000
SAMPLE_SIZE = 500
"""How many nodes a scheduler with default settings names on a cluster of 5,000 nodes."""
BIND_COUNT = 50
_COMMAND = "python -m benchmarks verbs --nodes {nodes}"


class _BindReply(msgspec.Struct):
    error: str = msgspec.field(name="Error")


def measure_rows(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """Measure every size, or the requested one."""
    if options.nodes in (None, 1000):
        yield from _measure_1000_nodes(options)
    if options.nodes in (None, 5000):
        yield from _measure_5000_nodes(options)
    if options.nodes in (None, 15000):
        yield from _measure_15000_nodes(options)


def _measure_1000_nodes(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    command = _COMMAND.format(nodes=1000)
    cluster = _build_cluster(1000, options)
    with run_measured_extender(ListPages.from_cluster(cluster)) as subject:
        times = SchedulerLoad(subject, cluster, options).run_calls()
    yield BenchmarkRow(
        "filter-1000-p50",
        "filter, 1,000 nodes, p50",
        command,
        _percentile_ms(times.filter_seconds, 0.5),
        "ms",
        0.35,
        0.6,
    )
    yield BenchmarkRow(
        "verbs-1000-cpu",
        "filter + prioritize, 1,000 nodes, CPU of the extender per pod",
        command,
        times.cpu_seconds_per_pod * 1000,
        "ms",
        2.2,
        3.1,
        note=_format_percentiles(times),
    )
    yield _measure_calls_per_bind(options)


def _measure_5000_nodes(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    command = _COMMAND.format(nodes=5000)
    cluster = _build_cluster(5000, options)
    with run_measured_extender(ListPages.from_cluster(cluster)) as subject:
        load = SchedulerLoad(subject, cluster, options)
        times, sampled = load.run_calls(), load.run_calls(sample_size=options.scale_count(SAMPLE_SIZE))
    what = "filter + prioritize, 5,000 nodes"
    yield BenchmarkRow(
        "verbs-5000-p50",
        f"{what}, p50",
        command,
        _percentile_ms(times.pair_seconds, 0.5),
        "ms",
        1.5,
        2.6,
        note=_format_cpu(times),
    )
    yield BenchmarkRow(
        "verbs-5000-p99", f"{what}, p99", command, _percentile_ms(times.pair_seconds, 0.99), "ms", 3, 5.5
    )
    what += f", {SAMPLE_SIZE} named"
    note = _format_cpu(sampled)
    yield BenchmarkRow(
        "verbs-5000-sampled-p50",
        f"{what}, p50",
        command,
        _percentile_ms(sampled.pair_seconds, 0.5),
        "ms",
        None,
        None,
        note=note,
    )
    yield BenchmarkRow(
        "verbs-5000-sampled-p99", f"{what}, p99", command, _percentile_ms(sampled.pair_seconds, 0.99), "ms", None, None
    )


def _measure_15000_nodes(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    command = _COMMAND.format(nodes=15000)
    cluster = _build_cluster(15000, options)
    with run_measured_extender(ListPages.from_cluster(cluster)) as subject:
        times = SchedulerLoad(subject, cluster, options).run_calls()
    what = "filter + prioritize, 15,000 nodes"
    yield BenchmarkRow(
        "verbs-15000-p50",
        f"{what}, p50",
        command,
        _percentile_ms(times.pair_seconds, 0.5),
        "ms",
        None,
        None,
        note=_format_cpu(times),
    )
    yield BenchmarkRow(
        "verbs-15000-p99", f"{what}, p99", command, _percentile_ms(times.pair_seconds, 0.99), "ms", 9, 15
    )


def _build_cluster(nodes: int, options: BenchmarkOptions) -> BenchmarkCluster:
    """A cluster without waiting pods, as what the extender does for these is not measured here."""
    return BenchmarkCluster(options.scale_count(nodes), options.scale_count(POD_COUNT), seed=options.seed)


def _measure_calls_per_bind(options: BenchmarkOptions) -> BenchmarkRow:
    """Bind the waiting pods, one by one. All API server calls count, except lists (pods, nodes, device classes, pod groups), watches and events.

    Events are written in the background, at a limited rate and not one for each bind.
    """
    cluster = BenchmarkCluster(nodes=100, pods=400, pending=options.scale_count(BIND_COUNT), seed=options.seed)
    with run_measured_extender(ListPages.from_cluster(cluster)) as subject:
        with HttpCaller(subject.port) as caller:
            for number in range(cluster.pending):
                _bind_pod(caller, f"pending-{number}", format_node_name(cluster.nodes - 1 - number % 2))
        calls = subject.api.calls
    for background in ("list", "watch", "GET deviceclasses", "GET podgroups"):
        del calls[background]
    assert calls["POST binding"] == cluster.pending
    events = calls["POST events"]
    figure = (calls.total() - events) / cluster.pending
    note = f"{cluster.pending} binds; {events} events besides, in the background"
    return BenchmarkRow(
        "bind-calls", "bind, API calls of each", _COMMAND.format(nodes=1000), figure, "calls", 1, 1, note=note
    )


def _bind_pod(caller: HttpCaller, name: str, node: str) -> None:
    args = {"PodName": name, "PodNamespace": "default", "PodUID": f"uid-of-{name}", "Node": node}
    bound = msgspec.json.decode(caller.send_post(f"{URL_PREFIX}/bind", encode_json(args)).body, type=_BindReply)
    assert not bound.error, bound.error


def _percentile_ms(seconds: Sequence[float], share: float) -> float:
    return compute_percentile(seconds, share) * 1000


def _format_percentiles(times: PairTimes) -> str:
    p50, p99 = (_percentile_ms(times.pair_seconds, share) for share in (0.5, 0.99))
    return f"p50 {p50:.2f} ms, p99 {p99:.2f} ms at the client"


def _format_cpu(times: PairTimes) -> str:
    return f"{times.cpu_seconds_per_pod * 1000:.2f} ms CPU of the extender for a pod"
