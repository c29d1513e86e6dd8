"""What 1,000 GPU pods that fit nowhere cost everybody else: CPU pods come 10 a second, and are timed until they are bound.

A pod that an extender refused comes back with nearly every event, so each CPU pod that is bound sends all of them through
the scheduler again. The refused pods fit by what the scheduler counts, node totals, and by nothing else: every card holds
9 of 16 units, and they ask for 8.

A scheduler holds a refused pod back for 1 s, twice as long each time, 10 s at most. As long as those times are short, a
thousand pods stand before each CPU pod, whatever the extender does; that takes some seconds and is shown as the time in which
it settles. Then the refused pods come only while nobody else waits, and a CPU pod waits for one of them: what the goal is
about. It is shown beside the recommended install, where CPU pods have a scheduler of their own, and beside an extender
that refuses at once without a thought, which is all that the scheduler itself makes of it.

A pod's time starts when its creation is due: what holds the stream up counts as waiting, and a stream that falls a second behind
is an error, not a smaller load. It tells nothing of a cluster whose cards come free meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.cpu import Meter, Used
from benchmarks.figures import percentile
from benchmarks.live_cluster import BoundWatch, Caller, add_nodes, delete_pods, pids, running, send
from benchmarks.live_programs import (
    GPU_SCHEDULER,
    PLAIN,
    PLAIN_SCHEDULER,
    idle_extender,
    our_extender,
    own_scheduler,
    scheduler,
    second_scheduler,
)
from benchmarks.options import Options
from benchmarks.rows import Row
from tests.e2e.cluster import Cluster
from tests.e2e.in_cluster import Extender
from tests.e2e.objects import PODS, a_pod
from tests.e2e.verb_calls import metric

COMMAND = "python -m benchmarks storm"
NODES, REFUSED, SECONDS = 50, 1000, 20
CARDS_PER_NODE = 8
HELD_UNITS, ASKED_UNITS = 9, 8
"""Of 16 on every card: 7 are free, 56 on a node."""
CPU_PODS_PER_SECOND = 10
INTERVAL_SECONDS = 1 / CPU_PODS_PER_SECOND
LATE_SECONDS = 1.0
"""A slow call is made up for, as the time counts from when a pod was due; ten pods behind is another load."""
REFUSALS_UNTIL_SETTLED = 6
"""After 1, 2, 4 and 8 s the fifth refusal is the first to hold a pod back for 10 s; one more, as they are not in step."""
AT_MOST_SECONDS = 120
LABEL = "storm"
OUR_REFUSALS = 'vrampack_extender_request_duration_seconds_count{result="no",verb="filter"}'
IDLE_REFUSALS = "idle_filtered_total"


@dataclass(frozen=True, slots=True)
class Shape:
    """Who schedules, and who refuses."""

    key: str
    what: str
    extender: Callable[[Cluster], AbstractContextManager[Extender]]
    refusals: str
    """The extender's counter of them."""
    is_apart: bool = False
    """Whether CPU pods have a scheduler of their own."""
    goal_ms: float | None = None
    floor_ms: float | None = None


def _thoughtless(cluster: Cluster) -> AbstractContextManager[Extender]:
    return idle_extender(cluster, "--refuse")


SHAPES = (
    Shape("one", "one scheduler for all", our_extender, OUR_REFUSALS, goal_ms=100, floor_ms=150),
    Shape("two", "the recommended second scheduler", our_extender, OUR_REFUSALS, is_apart=True),
    Shape("idle", "one scheduler, an extender that only refuses", _thoughtless, IDLE_REFUSALS),
)


@dataclass(frozen=True, slots=True)
class Storm:
    """How long CPU pods took, in ms, while it settled and afterwards; the rest is of afterwards."""

    settling_ms: list[float]
    settled_ms: list[float]
    refusals: float
    used: Used


def rows(options: Options) -> Iterator[Row]:
    """On a control plane of its own."""
    with running() as cluster:
        yield from rows_on(cluster, options)


def rows_on(cluster: Cluster, options: Options) -> Iterator[Row]:
    """All shapes, one after the other. The cluster is empty at first."""
    fill(cluster, options.sized(NODES))
    for shape in SHAPES:
        storm = measure(cluster, shape, refused=options.sized(REFUSED), seconds=options.sized(SECONDS, least=2))
        yield from _rows(shape, storm)


def fill(cluster: Cluster, nodes: int) -> None:
    """Every card holds one pod, placed by the extender itself."""
    add_nodes(cluster, nodes)
    count = nodes * CARDS_PER_NODE
    send(cluster, [("POST", PODS, a_pod(f"holds-{number}", HELD_UNITS)) for number in range(count)])
    with (
        our_extender(cluster) as extender,
        BoundWatch(cluster) as watch,
        scheduler(cluster, second_scheduler(cluster), extender),
    ):
        cluster.wait(lambda: watch.count == count, 120, what=lambda: f"bound: {watch.count} of {count}")


def measure(cluster: Cluster, shape: Shape, *, refused: int, seconds: float) -> Storm:
    """Refused pods first, then CPU pods until it has settled, then those that count."""
    with ExitStack() as stack:
        extender = stack.enter_context(shape.extender(cluster))
        configuration = second_scheduler(cluster) if shape.is_apart else own_scheduler()
        ours = stack.enter_context(scheduler(cluster, configuration, extender))
        of = pids(cluster) | {"scheduler": ours.pid, "extender": extender.process.pid}
        if shape.is_apart:
            of["plain"] = stack.enter_context(scheduler(cluster, PLAIN)).pid
        watch = stack.enter_context(BoundWatch(cluster))
        caller = stack.enter_context(closing(Caller(cluster)))
        stream = Stream(cluster, caller, watch, PLAIN_SCHEDULER if shape.is_apart else GPU_SCHEDULER)
        _have_refused(cluster, refused)
        enough = refused * REFUSALS_UNTIL_SETTLED
        settling = stream.run(lambda: metric(extender, shape.refusals) >= enough)
        before, meter = metric(extender, shape.refusals), Meter(of)
        ends = time.monotonic() + seconds
        settled = stream.run(lambda: time.monotonic() >= ends)
        storm = Storm(settling, settled, metric(extender, shape.refusals) - before, meter.read())
    if not storm.refusals:
        raise RuntimeError(f"{shape.key}: nobody was refused while the CPU pods that count came, so there was no storm")
    delete_pods(cluster, label=LABEL)
    return storm


class Stream:
    """CPU pods for one scheduler, at their pace whatever becomes of those before."""

    def __init__(self, cluster: Cluster, caller: Caller, watch: BoundWatch, scheduler_name: str) -> None:
        self._cluster = cluster
        self._caller = caller
        self._watch = watch
        self._scheduler_name = scheduler_name
        self._count = 0

    def run(self, is_enough: Callable[[], bool]) -> list[float]:
        """Until it is enough: how long each pod took to be bound, in ms, once all of them are.

        Raises `TimeoutError` when it never is, or when the stream cannot keep its pace.
        """
        began = time.monotonic()
        due: dict[str, float] = {}
        while not is_enough():
            at = began + len(due) * INTERVAL_SECONDS
            if at > began + AT_MOST_SECONDS:
                raise TimeoutError(f"not enough within {AT_MOST_SECONDS} s")
            _wait_until(at)
            name = f"cpu-{self._count + len(due)}"
            due[name] = at
            self._caller.call("POST", PODS, _a_cpu_pod(name, self._scheduler_name))
        self._count += len(due)
        self._cluster.wait(lambda: self._watch.count == self._count, 60, what="every CPU pod is bound")
        bound = self._watch.times()
        return [1000 * (bound[name] - at) for name, at in due.items()]


def _wait_until(due: float) -> None:
    """Raises `TimeoutError` when that was long ago: the load would be less than the row says."""
    ahead = due - time.monotonic()
    if ahead < -LATE_SECONDS:
        raise TimeoutError(
            f"the stream of CPU pods is {-ahead:.1f} s behind: the API server takes too long to create one"
        )
    if ahead > 0:
        threading.Event().wait(ahead)


def _have_refused(cluster: Cluster, count: int) -> None:
    """So many pods that the scheduler has refused once, and has said so: then it has nothing left to write."""
    names = [f"waits-{number}" for number in range(count)]
    send(cluster, [("POST", PODS, a_pod(name, ASKED_UNITS, labels={LABEL: ""})) for name in names])
    with closing(Caller(cluster)) as caller:
        for name in names:
            cluster.wait(partial(_is_refused, caller, name), 120, what=f"{name} is refused")


def _is_refused(caller: Caller, name: str) -> bool:
    return b'"PodScheduled"' in caller.call("GET", f"{PODS}/{name}")


def _a_cpu_pod(name: str, scheduler_name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "example.com/plain:1", "resources": {"requests": {"cpu": "10m"}}}
    spec = {"schedulerName": scheduler_name, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"metadata": {"name": name, "labels": {LABEL: ""}}, "spec": spec}


def _rows(shape: Shape, storm: Storm) -> Iterator[Row]:
    where = f"CPU pods bound beside a storm of refused pods, {shape.what}"
    key = f"storm-{shape.key}"
    settled, settling = storm.settled_ms, storm.settling_ms
    worst = f"longest {max(settled):.0f} ms of {len(settled)} pods; {_cost(storm)}"
    p99 = percentile(settled, 0.99)
    yield Row(f"{key}-p50", f"{where}: p50", COMMAND, percentile(settled, 0.5), "ms", None, None)
    yield Row(f"{key}-p99", f"{where}: p99", COMMAND, p99, "ms", shape.goal_ms, shape.floor_ms, note=worst)
    while_settling = f"p50 {percentile(settling, 0.5):.0f} ms, {len(settling) / CPU_PODS_PER_SECOND:.0f} s"
    longest = max(settling)
    yield Row(
        f"{key}-settling", f"{where}: longest while it settles", COMMAND, longest, "ms", None, None, note=while_settling
    )


def _cost(storm: Storm) -> str:
    rate = storm.refusals / storm.used.wall_seconds
    each = {name: 1000 * storm.used.seconds[name] / storm.refusals for name in ("scheduler", "extender")}
    spent = ", ".join(f"{name} {cost:.2f}" for name, cost in each.items())
    return f"{rate:.0f} refusals/s, CPU ms each: {spent}; others kept {storm.used.other_cores:.1f} cores busy"
