"""A scheduler's calls: filter, then prioritize of the nodes that passed, pod after pod, with a cluster change in between."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from benchmarks.cluster_objects import (
    FULL_NODE_FREE_UNITS,
    MAX_ASKED_UNITS,
    BenchmarkCluster,
    Object,
    build_requesting_pod,
    encode_event,
    encode_json,
)
from benchmarks.http_caller import HttpCaller
from benchmarks.measured_extender import URL_PREFIX, MeasuredExtender
from benchmarks.options import BenchmarkOptions

PAIR_COUNT = 600
WARM_UP = 60
"""Pairs before the first that counts, so that every usual size has been requested once."""
USUAL_SHAPES = ((8, 1), (10, 1), (12, 1), (16, 1), (20, 1), (24, 1), (16, 2), (40, 1))
"""Units and number of cards of the usual requests, which have all been seen before anything counts."""
NEW_SHAPE_EVERY = 20


class _FilterReply(msgspec.Struct):
    node_names: list[str] = msgspec.field(name="NodeNames")
    error: str = msgspec.field(name="Error", default="")


class NeighbourLoad(Protocol):
    """What the same scheduler does between two measured pods."""

    def send_next_call(self, caller: HttpCaller) -> None:
        """Send the next call, on the scheduler's connection."""
        ...


@dataclass(slots=True)
class PairTimes:
    """Seconds of every pair, in the order measured."""

    filter_seconds: list[float] = field(default_factory=list)
    pair_seconds: list[float] = field(default_factory=list)
    cpu_seconds_per_pod: float = 0.0


class SchedulerLoad:
    """One scheduler's calls, and the changes between them."""

    def __init__(self, subject: MeasuredExtender, cluster: BenchmarkCluster, options: BenchmarkOptions) -> None:
        self._subject = subject
        self._cluster = cluster
        self._random = random.Random(options.seed)
        self._names = [encode_json(name) for name in cluster.list_node_names()]
        self._full_nodes = [at for at in range(cluster.nodes) if cluster.is_full(at)]
        self._pair_count = options.scale_count(PAIR_COUNT, minimum=2 * NEW_SHAPE_EVERY)
        self._warm_up_count = options.scale_count(WARM_UP)
        self._pod_numbers = itertools.count(1)
        self._versions = itertools.count(1_000_001)
        self._removed_pod: Object | None = None
        self._changes_seen = 0
        new = [(units, count) for units in range(FULL_NODE_FREE_UNITS + 1, MAX_ASKED_UNITS + 1) for count in (1, 2)]
        unseen = [shape for shape in new if shape not in USUAL_SHAPES]
        self._new_shapes = iter(self._random.sample(unseen, len(unseen)))

    def run_calls(
        self, *, sample_size: int | None = None, neighbour: NeighbourLoad | None = None, until: float = math.inf
    ) -> PairTimes:
        """Ask about pod after pod; each call sends all names, or a random sample of this size.

        It stops at `until`, by `time.monotonic`.
        """
        times = PairTimes()
        with HttpCaller(self._subject.port) as caller:
            for number in range(self._warm_up_count):
                self._send_pair(caller, PairTimes(), USUAL_SHAPES[number % len(USUAL_SHAPES)], sample_size)
            cpu = self._subject.read_cpu_seconds()
            for number in range(self._pair_count):
                shape = (
                    next(self._new_shapes)
                    if number % NEW_SHAPE_EVERY == NEW_SHAPE_EVERY - 1
                    else self._random.choice(USUAL_SHAPES)
                )
                self._send_pair(caller, times, shape, sample_size)
                if neighbour is not None:
                    neighbour.send_next_call(caller)
                if time.monotonic() > until:
                    break
            assert self._changes_seen, "no change of the cluster ever came through the watch"
            times.cpu_seconds_per_pod = (self._subject.read_cpu_seconds() - cpu) / len(times.pair_seconds)
        return times

    def _send_pair(self, caller: HttpCaller, times: PairTimes, shape: tuple[int, int], sample_size: int | None) -> None:
        """One change, one filter, one prioritize of what passed."""
        self._change_cluster()
        units, count = shape
        pod = encode_json(build_requesting_pod(f"asking-{next(self._pod_numbers)}", units * count, count=count))
        names = sorted(self._names, key=lambda _: self._random.random())[:sample_size]
        asked = caller.send_post(f"{URL_PREFIX}/filter", encode_args(pod, names))
        reply = msgspec.json.decode(asked.body, type=_FilterReply)
        assert not reply.error, f"filter failed: {reply.error}"
        passed = reply.node_names
        half = len(names) - len(self._full_nodes)
        assert sample_size or half <= len(passed) <= half + 1, f"{len(passed)} of {len(names)} nodes passed"
        self._changes_seen += len(passed) > half and not sample_size
        scored = caller.send_post(f"{URL_PREFIX}/prioritize", encode_args(pod, [encode_json(name) for name in passed]))
        times.filter_seconds.append(asked.seconds)
        times.pair_seconds.append(asked.seconds + scored.seconds)

    def _change_cluster(self) -> None:
        """Remove a pod of a full node, which makes room there, or add the one that was removed last."""
        if self._removed_pod is None:
            pods = list(self._cluster.build_node_pods(self._random.choice(self._full_nodes)))
            self._removed_pod = self._random.choice(pods)
            self._subject.api.push_line("pods", encode_event("DELETED", self._removed_pod, next(self._versions)))
        else:
            self._subject.api.push_line("pods", encode_event("ADDED", self._removed_pod, next(self._versions)))
            self._removed_pod = None


def encode_args(pod: bytes, names: Sequence[bytes]) -> bytes:
    """The body of filter and prioritize, from a pod and names that are JSON already."""
    return b'{"Pod":%b,"Nodes":null,"NodeNames":[%b]}' % (pod, b",".join(names))
