"""A scheduler's calls: filter, then prioritize of what passed, pod after pod, with a change of the cluster in between."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from benchmarks.caller import Caller
from benchmarks.objects import FULL_LEAVES, MOST_ASKED, Cluster, Object, asking_pod, encode, event
from benchmarks.options import Options
from benchmarks.subject import PREFIX, Subject

PAIRS = 600
WARM_UP = 60
"""Pairs before the first that counts: every usual size has been asked for."""
USUAL = ((8, 1), (10, 1), (12, 1), (16, 1), (20, 1), (24, 1), (16, 2), (40, 1))
"""Units on each of so many cards: what a cluster asks for again and again, and has asked for before anything counts."""
NEW_EVERY = 20


class _Passed(msgspec.Struct):
    node_names: list[str] = msgspec.field(name="NodeNames")


@dataclass(slots=True)
class Times:
    """Seconds of every pair, in the order measured."""

    filter: list[float] = field(default_factory=list)
    both: list[float] = field(default_factory=list)
    cpu_per_pod: float = 0.0


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
        self._changes_seen = 0
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
            assert self._changes_seen, "no change of the cluster ever came through the watch"
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
        self._changes_seen += len(passed) > half and not sampled
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
