"""How many pods a second a real kube-scheduler binds on 1,000 nodes: with our extender, with one that does nothing, alone.

A burst of pods is there before the scheduler starts; from the first pod bound to the last the pace is taken, by a watch
of our own. All kinds take turns on one control plane, each time with a fresh scheduler and extender, so that what else
the machine does falls on all of them. Kinds are compared within a round, and the median of the rounds is shown. Scheduler,
extender and API server share the machine's cores, as they do on a control-plane host: the pace says which of them is in
the way, CPU time per pod what each costs. It says nothing of pods that come one by one, nor of a full cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from pydantic import ValidationError

from benchmarks.cpu import Meter, Used
from benchmarks.live_cluster import BoundWatch, add_nodes, delete_pods, pids, running, send
from benchmarks.live_programs import idle_extender, our_extender, scheduler, second_scheduler
from benchmarks.options import Options
from benchmarks.rows import Row
from extender.settings import ExtenderConfiguration
from tests.e2e.auditing import broken_promises
from tests.e2e.cluster import Cluster, Json
from tests.e2e.in_cluster import Extender
from tests.e2e.objects import PODS, a_pod

COMMAND = "python -m benchmarks scheduler"
NODES, PODS_IN_BURST, ROUNDS = 1000, 1000, 2
UNITS_PER_POD = 4
NOT_SERVED = "this version of the extender does not serve that `decide`"
BURST_SECONDS = 180
"""A burst takes 5 to 15 s; one that takes so long has lost a pod."""

StartExtender = Callable[[Cluster], AbstractContextManager[Extender]]


@dataclass(frozen=True, slots=True)
class Kind:
    """One set-up that takes its turn."""

    key: str
    what: str
    start: StartExtender | None = None
    decide: str = ""
    """Of our extender; empty where it is not ours."""
    scores: bool = True
    """Whether the scheduler's own score plugins run."""


@dataclass(frozen=True, slots=True)
class Burst:
    """One burst, all of it bound."""

    pods_per_second: float
    counted: int
    """Pods bound while CPU time was counted; none where a burst is over before that begins."""
    used: Used

    def milliseconds(self, program: str) -> float:
        """CPU time per counted pod."""
        return 1000 * self.used.seconds.get(program, 0.0) / self.counted


def _ours(key: str, what: str, decide: str, *, scores: bool = True) -> Kind:
    return Kind(key, what, partial(our_extender, decide=decide), decide, scores)


KINDS = (
    Kind("none", "no extender"),
    Kind("idle", "an extender that does nothing", idle_extender),
    _ours("prioritize", "decide: prioritize", "prioritize"),
    _ours("filter", "decide: filter", "filter"),
    _ours("auto", "decide: auto", "auto"),
    _ours("no-scores", "decide: prioritize, score plugins off", "prioritize", scores=False),
)


@dataclass(frozen=True, slots=True)
class Ratio:
    """One kind beside another, and what their ratio must reach."""

    kind: str
    beside: str
    goal: float
    floor: float


RATIOS = (
    Ratio("prioritize", "idle", goal=0.9, floor=0.75),
    Ratio("filter", "idle", goal=1.2, floor=1.05),
    Ratio("filter", "none", goal=0.8, floor=0.65),
)


def rows(options: Options) -> Iterator[Row]:
    """On a control plane of its own."""
    with running() as cluster:
        yield from rows_on(cluster, options)


def rows_on(cluster: Cluster, options: Options) -> Iterator[Row]:
    """Each kind's own pace, then the ratios. The cluster is empty at first."""
    add_nodes(cluster, options.sized(NODES))
    bursts = measure(cluster, pods=options.sized(PODS_IN_BURST), rounds=options.sized(ROUNDS, least=1))
    for kind in KINDS:
        yield _pace_row(kind, bursts[kind.key])
    for ratio in RATIOS:
        yield _ratio_row(ratio, bursts)


def measure(cluster: Cluster, *, pods: int, rounds: int) -> Mapping[str, Sequence[Burst]]:
    """By kind, one burst of each round. A kind that this version does not serve has none."""
    bursts: dict[str, list[Burst]] = {kind.key: [] for kind in KINDS}
    served = [kind for kind in KINDS if _is_served(kind.decide)]
    for kind in served * rounds:
        bursts[kind.key].append(burst(cluster, kind, pods))
    return bursts


def burst(cluster: Cluster, kind: Kind, count: int) -> Burst:
    """Make the pods, have them bound, see that it was done right, and take them away."""
    send(cluster, [("POST", PODS, a_pod(f"p{number}", UNITS_PER_POD)) for number in range(count)])
    with ExitStack() as stack:
        extender = stack.enter_context(kind.start(cluster)) if kind.start else None
        watch = stack.enter_context(BoundWatch(cluster))
        process = stack.enter_context(scheduler(cluster, _configuration(cluster, kind), extender))
        already = watch.count
        meter = Meter(pids(cluster) | {"scheduler": process.pid} | _pid_of(extender))
        cluster.wait(lambda: watch.count >= count, BURST_SECONDS, what=lambda: f"bound: {watch.count} of {count}")
        made = Burst(_pace(watch), count - already, meter.read())
    if kind.decide:
        _check(cluster, kind)
    delete_pods(cluster)
    return made


def _pace(watch: BoundWatch) -> float:
    """The first pod bound starts the clock, so it does not count itself."""
    times = sorted(watch.times().values())
    return (len(times) - 1) / (times[-1] - times[0])


def _configuration(cluster: Cluster, kind: Kind) -> Json:
    made = second_scheduler(cluster)
    if not kind.scores:
        made["profiles"][0]["plugins"]["score"]["disabled"] = [{"name": "*"}]
    return made


def _check(cluster: Cluster, kind: Kind) -> None:
    """Fast and wrong is worth nothing: every pod has a record, no card is over."""
    broken = broken_promises(cluster, transcript=Path("none"))
    if broken:
        raise RuntimeError(f"{kind.key}: the auditor reports:\n{broken}")


def _pid_of(extender: Extender | None) -> dict[str, int]:
    return {"extender": extender.process.pid} if extender else {}


def _is_served(decide: str) -> bool:
    try:
        ExtenderConfiguration.model_validate(
            {"apiVersion": "vrampack.dev/v1", "kind": "ExtenderConfiguration", "decide": decide or "prioritize"}
        )
    except ValidationError:
        return False
    return True


def _pace_row(kind: Kind, bursts: Sequence[Burst]) -> Row:
    figure = median(each.pods_per_second for each in bursts) if bursts else None
    what = f"pods bound per second: {kind.what}"
    note = _note(bursts) if bursts else NOT_SERVED
    return Row(f"rate-{kind.key}", what, COMMAND, figure, "pods/s", None, None, larger_is_better=True, note=note)


def _ratio_row(ratio: Ratio, bursts: Mapping[str, Sequence[Burst]]) -> Row:
    key = f"rate-{ratio.kind}-to-{ratio.beside}"
    kinds = {kind.key: kind for kind in KINDS}
    pairs = list(zip(bursts[ratio.kind], bursts[ratio.beside], strict=False))
    each = [ours.pods_per_second / theirs.pods_per_second for ours, theirs in pairs]
    return Row(
        key,
        f"{kinds[ratio.kind].what}, beside {kinds[ratio.beside].what}",
        COMMAND,
        median(each) if each else None,
        "x",
        ratio.goal,
        ratio.floor,
        larger_is_better=True,
        note="each round: " + ", ".join(f"{one:.2f}" for one in each) if each else NOT_SERVED,
    )


def _note(bursts: Sequence[Burst]) -> str:
    counted = [each for each in bursts if each.counted]
    if not counted:
        return "CPU time not counted: all pods were bound before that began"
    programs = ("scheduler", "extender", "kube-apiserver")
    costs = {name: median(each.milliseconds(name) for each in counted) for name in programs}
    shown = ", ".join(f"{name} {cost:.1f}" for name, cost in costs.items() if cost)
    others = max(each.used.other_cores for each in bursts)
    return f"CPU ms per pod: {shown}; others kept {others:.1f} cores busy"
