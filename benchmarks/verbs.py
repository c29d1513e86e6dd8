"""What a scheduler waits for: filter and prioritize of one pod, as its client sees them.

Measured is the real `vrampack serve` over loopback on one keep-alive connection: both calls, each from before its first
byte is sent until its last byte has arrived. 20,000 pods are in the ledger, every name is in the body in another order
each time, half of the nodes fit, prioritize names those that filter passed. Between two pods the API server's watch brings
one change (a pod bound, or one gone). One pod in twenty asks for a size that nobody has asked for before.

It matters because a scheduler places one pod after another: what these calls take, no pod gets back. The figures do not
tell what a busy machine adds: client, extender and API server share its cores. The time of the scheduler itself, encoding
and decoding, is in the group `scheduler`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from benchmarks.caller import Caller
from benchmarks.figures import percentile
from benchmarks.load import Load, Times
from benchmarks.objects import Cluster, encode, node_name
from benchmarks.options import Options
from benchmarks.rows import Row
from benchmarks.subject import PREFIX, Pages, serving

PODS = 20_000
SAMPLED = 500
"""What a scheduler with default settings names on a cluster of 5,000 nodes."""
BINDS = 50
_COMMAND = "python -m benchmarks verbs --nodes {nodes}"


class _Bound(msgspec.Struct):
    error: str = msgspec.field(name="Error")


def rows(options: Options) -> Iterator[Row]:
    """Every size, or the one that was asked for."""
    if options.nodes in (None, 1000):
        yield from _thousand(options)
    if options.nodes in (None, 5000):
        yield from _five_thousand(options)
    if options.nodes in (None, 15000):
        yield from _fifteen_thousand(options)


def _thousand(options: Options) -> Iterator[Row]:
    command = _COMMAND.format(nodes=1000)
    cluster = _cluster(1000, options)
    with serving(Pages.of(cluster)) as subject:
        times = Load(subject, cluster, options).run()
    what = "filter, 1,000 nodes, p50"
    yield Row("filter-1000-p50", what, command, _ms(times.filter, 0.5), "ms", 1, 1.5, note=_cpu(times))
    yield _calls_per_bind(options)


def _five_thousand(options: Options) -> Iterator[Row]:
    command = _COMMAND.format(nodes=5000)
    cluster = _cluster(5000, options)
    with serving(Pages.of(cluster)) as subject:
        load = Load(subject, cluster, options)
        times, sampled = load.run(), load.run(sampled=options.sized(SAMPLED))
    what = "filter + prioritize, 5,000 nodes"
    yield Row("verbs-5000-p50", f"{what}, p50", command, _ms(times.both, 0.5), "ms", 2, 3, note=_cpu(times))
    yield Row("verbs-5000-p99", f"{what}, p99", command, _ms(times.both, 0.99), "ms", 5, 7.5)
    what += f", {SAMPLED} named"
    note = _cpu(sampled)
    yield Row("verbs-5000-sampled-p50", f"{what}, p50", command, _ms(sampled.both, 0.5), "ms", None, None, note=note)
    yield Row("verbs-5000-sampled-p99", f"{what}, p99", command, _ms(sampled.both, 0.99), "ms", None, None)


def _fifteen_thousand(options: Options) -> Iterator[Row]:
    command = _COMMAND.format(nodes=15000)
    cluster = _cluster(15000, options)
    with serving(Pages.of(cluster)) as subject:
        times = Load(subject, cluster, options).run()
    what = "filter + prioritize, 15,000 nodes"
    yield Row("verbs-15000-p50", f"{what}, p50", command, _ms(times.both, 0.5), "ms", None, None, note=_cpu(times))
    yield Row("verbs-15000-p99", f"{what}, p99", command, _ms(times.both, 0.99), "ms", 15, 22.5)


def _cluster(nodes: int, options: Options) -> Cluster:
    """Nobody waits in it: what the extender does for those is not what is measured here."""
    return Cluster(options.sized(nodes), options.sized(PODS), seed=options.seed)


def _calls_per_bind(options: Options) -> Row:
    """Bind the pods that wait, one by one. Whatever the API server is asked counts, but for lists (pods, nodes, device classes), watches and events.

    Events are written in the background, at most so many a second and not one for each bind.
    """
    cluster = Cluster(nodes=100, pods=400, pending=options.sized(BINDS), seed=options.seed)
    with serving(Pages.of(cluster)) as subject:
        with Caller(subject.port) as caller:
            for number in range(cluster.pending):
                _bind(caller, f"pending-{number}", node_name(cluster.nodes - 1 - number % 2))
        calls = subject.api.calls
    for background in ("list", "watch", "GET deviceclasses"):
        del calls[background]
    assert calls["POST binding"] == cluster.pending
    events = calls["POST events"]
    figure = (calls.total() - events) / cluster.pending
    note = f"{cluster.pending} binds; {events} events besides, in the background"
    return Row("bind-calls", "bind, API calls of each", _COMMAND.format(nodes=1000), figure, "calls", 1, 1, note=note)


def _bind(caller: Caller, name: str, node: str) -> None:
    args = {"PodName": name, "PodNamespace": "default", "PodUID": f"uid-of-{name}", "Node": node}
    bound = msgspec.json.decode(caller.post(f"{PREFIX}/bind", encode(args)).body, type=_Bound)
    assert not bound.error, bound.error


def _ms(seconds: Sequence[float], share: float) -> float:
    return percentile(seconds, share) * 1000


def _cpu(times: Times) -> str:
    return f"{times.cpu_per_pod * 1000:.2f} ms CPU of the extender for a pod"
