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

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from benchmarks.caller import Caller
from benchmarks.figures import percentile
from benchmarks.objects import FULL_LEAVES, MOST_ASKED, Cluster, Object, asking_pod, encode, event, node_name
from benchmarks.options import Options
from benchmarks.rows import Row
from benchmarks.subject import PREFIX, Pages, Subject, serving

PAIRS = 600
WARM_UP = 60
"""Pairs before the first that counts: every usual size has been asked for."""
PODS = 20_000
USUAL = ((8, 1), (10, 1), (12, 1), (16, 1), (20, 1), (24, 1), (16, 2), (40, 1))
"""Units on each of so many cards: sizes that a cluster asks for again and again; tables of all of them are there when the measurement begins."""
NEW_EVERY = 20
SAMPLED = 500
"""What a scheduler with default settings names on a cluster of 5,000 nodes."""
BINDS = 50
_COMMAND = "python -m benchmarks verbs --nodes {nodes}"


class _Passed(msgspec.Struct):
    node_names: list[str] = msgspec.field(name="NodeNames")


class _Bound(msgspec.Struct):
    error: str = msgspec.field(name="Error")


@dataclass(slots=True)
class Times:
    """Seconds of every pair, in the order measured."""

    filter: list[float] = field(default_factory=list)
    both: list[float] = field(default_factory=list)
    cpu_per_pod: float = 0.0


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
        bind = _calls_per_bind(subject, cluster)
    what = "filter, 1,000 nodes, p50"
    yield Row("filter-1000-p50", what, command, _ms(times.filter, 0.5), "ms", 1, 1.5, note=_cpu(times))
    yield bind


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
    return Cluster(options.sized(nodes), options.sized(PODS), pending=options.sized(BINDS), seed=options.seed)


def _calls_per_bind(subject: Subject, cluster: Cluster) -> Row:
    """Bind the pods that wait, one by one. Whatever the API server is asked counts, but for events.

    Those are written in the background, at most so many a second and not one for each bind.
    """
    before = subject.api.calls.total()
    with Caller(subject.port) as caller:
        for number in range(cluster.pending):
            name, node = f"pending-{number}", node_name(cluster.nodes - 1 - number % 2)
            args = {"PodName": name, "PodNamespace": "default", "PodUID": f"uid-of-{name}", "Node": node}
            bound = msgspec.json.decode(caller.post(f"{PREFIX}/bind", encode(args)).body, type=_Bound)
            assert not bound.error, bound.error
    assert subject.api.calls["POST binding"] == cluster.pending
    events = subject.api.calls["POST events"]
    figure = (subject.api.calls.total() - events - before) / cluster.pending
    note = f"{cluster.pending} binds; {events} events besides, in the background"
    return Row("bind-calls", "bind, API calls of each", _COMMAND.format(nodes=1000), figure, "calls", 1, 1, note=note)


class Load:
    """One scheduler's calls, and the changes between them."""

    def __init__(self, subject: Subject, cluster: Cluster, options: Options) -> None:
        self._subject = subject
        self._cluster = cluster
        self._chance = random.Random(options.seed)
        self._names = [encode(name) for name in cluster.names()]
        self._full = [at for at in range(cluster.nodes) if cluster.is_full(at)]
        self._pairs = options.sized(PAIRS, least=2 * NEW_EVERY)
        self._warm_up = options.sized(WARM_UP)
        self._pods = itertools.count(1)
        self._version = itertools.count(1_000_001)
        self._gone: Object | None = None
        new = [(units, count) for units in range(FULL_LEAVES + 1, MOST_ASKED + 1) for count in (1, 2)]
        unseen = [shape for shape in new if shape not in USUAL]
        self._new = iter(self._chance.sample(unseen, len(unseen)))

    def run(self, *, sampled: int | None = None) -> Times:
        """Ask about pod after pod; all names are sent, or so many drawn anew each time."""
        times = Times()
        with Caller(self._subject.port) as caller:
            for number in range(self._warm_up):
                self._pair(caller, Times(), USUAL[number % len(USUAL)], sampled)
            cpu = self._subject.cpu_seconds()
            for number in range(self._pairs):
                shape = next(self._new) if number % NEW_EVERY == NEW_EVERY - 1 else self._chance.choice(USUAL)
                self._pair(caller, times, shape, sampled)
            times.cpu_per_pod = (self._subject.cpu_seconds() - cpu) / self._pairs
        return times

    def _pair(self, caller: Caller, times: Times, shape: tuple[int, int], sampled: int | None) -> None:
        """One change, one filter, one prioritize of what passed."""
        self._change()
        units, count = shape
        pod = encode(asking_pod(f"asking-{next(self._pods)}", units * count, count=count))
        names = sorted(self._names, key=lambda _: self._chance.random())[:sampled]
        asked = caller.post(f"{PREFIX}/filter", _args(pod, names))
        passed = msgspec.json.decode(asked.body, type=_Passed).node_names
        half = len(names) - len(self._full)
        assert sampled or half <= len(passed) <= half + 1, f"{len(passed)} of {len(names)} nodes passed"
        scored = caller.post(f"{PREFIX}/prioritize", _args(pod, [encode(name) for name in passed]))
        times.filter.append(asked.seconds)
        times.both.append(asked.seconds + scored.seconds)

    def _change(self) -> None:
        """A pod of a full node goes, which makes room there, or the one that went last is back."""
        if self._gone is None:
            pods = list(self._cluster.pods_of(self._chance.choice(self._full)))
            self._gone = self._chance.choice(pods)
            self._subject.api.push("pods", event("DELETED", self._gone, next(self._version)))
        else:
            self._subject.api.push("pods", event("ADDED", self._gone, next(self._version)))
            self._gone = None


def _args(pod: bytes, names: Sequence[bytes]) -> bytes:
    return b'{"Pod":%b,"Nodes":null,"NodeNames":[%b]}' % (pod, b",".join(names))


def _ms(seconds: Sequence[float], share: float) -> float:
    return percentile(seconds, share) * 1000


def _cpu(times: Times) -> str:
    return f"{times.cpu_per_pod * 1000:.2f} ms CPU of the extender for a pod"
