"""What a tenant's pods cost all others: pods made to be expensive, on 5,000 nodes with eight cards.

A user who may create a pod writes its annotations, labels and containers, and may create a thousand of them. The service answers
all schedulers on one event loop, so every other pod waits for what one pod costs. It measures the real `vrampack serve`: for
each kind of pod the longest turn of the loop (CPU time, see `turn_clock.py`) while the watch shows the pods, a scheduler asks
about them, and gained room makes the service check the waiting ones; then ordinary pods alone and beside all of this, and the
memory at the end. It does not tell how long a pod takes to be bound, nor what its API server takes.
"""

from __future__ import annotations

import itertools
import logging
import random
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.cluster_objects import (
    CROWD,
    BenchmarkCluster,
    Object,
    build_requesting_pod,
    encode_event,
    encode_json,
    format_node_name,
)
from benchmarks.hostile_pods import HostileKind, build_nominee, build_preemptor, list_hostile_kinds
from benchmarks.http_caller import HttpCaller, HttpReply
from benchmarks.measured_extender import URL_PREFIX, ListPages, MeasuredExtender, run_measured_extender
from benchmarks.options import BenchmarkOptions
from benchmarks.percentiles import compute_percentile
from benchmarks.scheduler_load import SchedulerLoad, encode_args
from benchmarks.turn_clock import LoopTurn, TurnClock, find_longest_ms

NODE_COUNT = 5000
POD_COUNT = 20_000
CROWDED_NODES = 500
NOMINEE_COUNT = 500
PREEMPT_CALLS = 6
FILTER_CALLS = 20
"""Calls for ordinary pods while others are nominated."""
SCRAPES = 5
ROUND_SECONDS = 0.5
"""Time from a gain of room to the end of the activation round for it, which begins 30 ms later."""
MOST_SECONDS = 15.0
"""For one kind, and for ordinary pods beside all: a service that takes seconds for a call gets fewer calls."""
COMMAND = "python -m benchmarks adversarial"


log = logging.getLogger(__name__)


class _FilterReply(msgspec.Struct):
    node_names: list[str] = msgspec.field(name="NodeNames")
    error: str = msgspec.field(name="Error")


@dataclass(slots=True)
class HostilePhase:
    """One kind of call, alone with the service."""

    key: str
    what: str
    began: float = 0.0
    ended: float = 0.0
    call_seconds: list[float] = field(default_factory=list)
    is_unanswered: bool = False
    """Whether a call had no answer in time: then the service is stuck, and the rest is left out."""

    def record_reply(self, reply: HttpReply) -> HttpReply:
        self.call_seconds.append(reply.seconds)
        return reply


@dataclass(slots=True)
class AdversarialFigures:
    """The measurements of one service."""

    phases: list[HostilePhase] = field(default_factory=list)
    alone_seconds: list[float] = field(default_factory=list)
    """Filter and prioritize of ordinary pods, alone and beside the others."""
    beside_seconds: list[float] = field(default_factory=list)
    resident_mb: float = 0.0
    peak_mb: float = 0.0


def measure_rows(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """Measure one service with all kinds."""
    cluster = BenchmarkCluster(
        options.scale_count(NODE_COUNT, 40),
        options.scale_count(POD_COUNT, 80),
        crowded=options.scale_count(CROWDED_NODES),
        seed=options.seed,
    )
    with tempfile.TemporaryDirectory(prefix="vrampack-bench-") as folder:
        clock = TurnClock(Path(folder))
        pages, figures = ListPages.from_cluster(cluster), AdversarialFigures()
        try:
            with run_measured_extender(pages, environment=clock.environment) as subject:
                AdversarialRun(subject, cluster, options, figures).measure_service()
        except subprocess.TimeoutExpired:
            log.warning("the service did not stop in time")
        turns = clock.read_turns()
    yield from (_build_turn_row(phase, turns) for phase in figures.phases)
    yield from _build_service_rows(figures)


class AdversarialRun:
    """One scheduler's connection to one service, and a second connection for concurrent calls."""

    def __init__(
        self,
        subject: MeasuredExtender,
        cluster: BenchmarkCluster,
        options: BenchmarkOptions,
        figures: AdversarialFigures,
    ) -> None:
        self._subject = subject
        self._cluster = cluster
        self._options = options
        self._random = random.Random(options.seed)
        self._names = [encode_json(name) for name in cluster.list_node_names()]
        self._kinds = list_hostile_kinds(cluster, options)
        self._versions = itertools.count(2_000_001)
        self._figures = figures

    def measure_service(self) -> None:
        """Measure ordinary pods, each kind of hostile pods alone, and ordinary pods beside all of them."""
        ordinary = SchedulerLoad(self._subject, self._cluster, self._options)
        self._send_first_call()
        with self._run_phase("none", "ordinary pods"):
            self._figures.alone_seconds = ordinary.run_calls().pair_seconds
        for kind in self._kinds:
            self._measure_kind(kind)
        self._measure_victims()
        self._measure_nominees()
        self._show_all_pods()
        self._measure_scrapes()
        beside = HostileNeighbour([self._encode_call(kind, 0) for kind in self._kinds])
        with self._run_phase("beside", "ordinary pods beside all of them"), self._run_scrapes_and_preemptions():
            times = ordinary.run_calls(neighbour=beside, until=time.monotonic() + MOST_SECONDS)
            self._figures.beside_seconds = times.pair_seconds
        self._figures.resident_mb = self._subject.read_memory_mb("VmRSS")
        self._figures.peak_mb = self._subject.read_memory_mb("VmHWM")

    def _send_first_call(self) -> None:
        """Send a call, in which the service evaluates every node for the first time."""
        pod = encode_json(build_requesting_pod("first", 8))
        with HttpCaller(self._subject.port) as caller:
            caller.send_post(f"{URL_PREFIX}/filter", encode_args(pod, self._names))

    def _measure_kind(self, kind: HostileKind) -> None:
        with self._run_phase(kind.key, kind.what) as phase, HttpCaller(self._subject.port) as caller:
            for number in range(kind.count):
                self._push_pod(kind.build_pod(number))
                body = self._encode_call(kind, number)
                for _ in range(kind.calls):
                    self._send_filter(caller, phase, body)
                if time.monotonic() > phase.began + MOST_SECONDS:
                    break
            self._gain_room()
        for number in range(kind.count):
            self._push_pod(kind.build_pod(number), "DELETED")

    def _show_all_pods(self) -> None:
        for kind in self._kinds:
            for number in range(kind.count):
                self._push_pod(kind.build_pod(number))

    def _measure_victims(self) -> None:
        """Propose all pods of 500 nodes, or one of each, so that others have to be added."""
        nodes = self._cluster.list_crowded_nodes()
        what = f"{CROWD} victims on {len(nodes)} nodes"
        with self._run_phase("victims", what) as phase, HttpCaller(self._subject.port) as caller:
            for number in range(PREEMPT_CALLS):
                pod = build_preemptor(number)
                self._push_pod(pod)
                body = _encode_preemption(pod, nodes, 1 if number % 2 else CROWD)
                phase.record_reply(caller.send_post(f"{URL_PREFIX}/preempt", body))
                self._send_filter(caller, phase, encode_args(encode_json(pod), self._names))

    def _measure_nominees(self) -> None:
        free = [at for at in range(self._cluster.nodes) if not self._cluster.is_full(at)]
        nominated = self._random.sample(free, self._options.scale_count(NOMINEE_COUNT))
        what = f"{len(nominated)} nominees"
        with self._run_phase("nominees", what) as phase, HttpCaller(self._subject.port) as caller:
            for number, node in enumerate(nominated):
                self._push_pod(build_nominee(number, node))
            for number in range(FILTER_CALLS):
                pod = encode_json(build_requesting_pod(f"beside-nominees-{number}", 8))
                self._send_filter(caller, phase, encode_args(pod, self._names))
            self._gain_room()

    def _measure_scrapes(self) -> None:
        with (
            self._run_phase("scrape", "a scrape with all of them waiting") as phase,
            HttpCaller(self._subject.port) as caller,
        ):
            for _ in range(SCRAPES):
                phase.record_reply(caller.send_get("/metrics"))
                if time.monotonic() > phase.began + MOST_SECONDS:
                    break

    @contextmanager
    def _run_phase(self, key: str, what: str) -> Iterator[HostilePhase]:
        phase = HostilePhase(key, what, began=time.monotonic())
        try:
            yield phase
        except TimeoutError:
            log.exception("no answer phase=%s", key)
            phase.is_unanswered = True
        phase.ended = time.monotonic()
        self._figures.phases.append(phase)

    @contextmanager
    def _run_scrapes_and_preemptions(self) -> Iterator[None]:
        """Inside the block, send a scrape and a preemption every second."""
        bodies = [
            _encode_preemption(build_preemptor(number), self._cluster.list_crowded_nodes(), CROWD)
            for number in range(PREEMPT_CALLS)
        ]
        stopped = threading.Event()
        thread = threading.Thread(target=_send_beside, args=(self._subject.port, bodies, stopped))
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    def _push_pod(self, pod: Object, event: str = "ADDED") -> None:
        self._subject.api.push_line("pods", encode_event(event, pod, next(self._versions)))

    def _gain_room(self) -> None:
        """Remove a pod of a full node, and add it again later, so that the service checks the waiting pods."""
        node = next(at for at in reversed(range(self._cluster.nodes)) if self._cluster.is_full(at))
        pod = next(self._cluster.build_node_pods(node))
        for event in ("DELETED", "ADDED"):
            self._push_pod(pod, event)
            threading.Event().wait(ROUND_SECONDS / self._options.shrink)

    def _encode_call(self, kind: HostileKind, number: int) -> bytes:
        names = self._random.sample(self._names, min(len(self._names), kind.sample_size or len(self._names)))
        return encode_args(encode_json(kind.build_pod(number)), names)

    def _send_filter(self, caller: HttpCaller, phase: HostilePhase, body: bytes) -> None:
        reply = phase.record_reply(caller.send_post(f"{URL_PREFIX}/filter", body))
        answer = msgspec.json.decode(reply.body, type=_FilterReply)
        assert not answer.error, answer.error


class HostileNeighbour:
    """Makes the scheduler ask about a hostile pod between two ordinary ones, of each kind in turn."""

    def __init__(self, bodies: Sequence[bytes]) -> None:
        self._bodies = itertools.cycle(bodies)

    def send_next_call(self, caller: HttpCaller) -> None:
        caller.send_post(f"{URL_PREFIX}/filter", next(self._bodies))


def _send_beside(port: int, bodies: Sequence[bytes], stopped: threading.Event) -> None:
    for body in itertools.cycle(bodies):
        try:
            with HttpCaller(port) as caller:
                caller.send_post(f"{URL_PREFIX}/preempt", body)
                caller.send_get("/metrics")
        except TimeoutError:
            log.warning("no answer to preempt or a scrape")
        if stopped.wait(1):
            return


def _encode_preemption(pod: Object, nodes: Sequence[int], victims: int) -> bytes:
    proposed = {
        format_node_name(node): {
            "Pods": [{"UID": f"uid-of-pod-{node}-{number}"} for number in range(victims)],
            "NumPDBViolations": 0,
        }
        for node in nodes
    }
    return encode_json({"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": proposed})


def _build_turn_row(phase: HostilePhase, turns: list[LoopTurn]) -> BenchmarkRow:
    figure = None if phase.is_unanswered else find_longest_ms(turns, phase.began, phase.ended)
    goal, floor = (None, None) if phase.key == "none" else (10, 15)
    note = ""
    if phase.call_seconds:
        note = f"{len(phase.call_seconds)} calls, the longest {1000 * max(phase.call_seconds):.0f} ms at the client"
    what = f"{phase.what}: longest turn of the loop"
    return BenchmarkRow(f"adversarial-{phase.key}", what, COMMAND, figure, "ms", goal, floor, note=note)


def _build_service_rows(figures: AdversarialFigures) -> Iterator[BenchmarkRow]:
    ratio, note = None, "no answer in time"
    if figures.alone_seconds and figures.beside_seconds:
        alone = 1000 * compute_percentile(figures.alone_seconds, 0.99)
        beside = 1000 * compute_percentile(figures.beside_seconds, 0.99)
        ratio = beside / alone
        note = f"{beside:.1f} ms beside them, {alone:.1f} ms without; {len(figures.beside_seconds)} pods"
    what = "ordinary pods beside all of them, filter + prioritize, p99"
    yield BenchmarkRow("adversarial-p99", what, COMMAND, ratio, "x", 1.5, 2.25, note=note)
    what, note = "with all of them waiting, resident", f"{figures.peak_mb:.0f} MB at most"
    yield BenchmarkRow("adversarial-rss", what, COMMAND, figures.resident_mb, "MB", 250, 375, note=note)
