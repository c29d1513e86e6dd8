"""How many pods a second a real kube-scheduler binds on 1,000 nodes: with our extender, with one that does nothing, alone.

Pods are created while others are scheduled: most exist before the scheduler starts, and one more is created for every four that
are bound, so that some always wait. At one for each, creations would set the pace of every setup: on two cores they cost as much
as everything else together. A watch of our own measures the pace from the first bound pod to the last. All setups take turns
on one control plane, each time with a fresh scheduler and extender, so that other load of the machine affects all of them.
Setups are compared within a round, and the median of the rounds is shown. Scheduler, extender and API server share the
machine's cores, as on a control-plane host: the pace shows which of them is the bottleneck, the CPU time per pod what each
costs. It says nothing about pods that come one by one, nor about a full cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from pydantic import ValidationError

from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.cpu_meter import CpuMeter, CpuUsage
from benchmarks.live_cluster import BoundPodWatch, add_nodes, collect_pids, delete_pods, run_control_plane, send_calls
from benchmarks.live_programs import read_second_scheduler_config, run_idle_extender, run_our_extender, run_scheduler
from benchmarks.options import BenchmarkOptions
from extender.settings import ExtenderConfiguration
from tests.e2e.auditing import audit_cluster
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.verb_calls import read_metric
from tests.support.control_plane.cluster import ControlPlane, Json
from tests.support.manifest_builders import PODS, pod_manifest

COMMAND = "python -m benchmarks scheduler"
NODES, PODS_IN_BURST, ROUNDS = 1000, 1000, 2
UNITS_PER_POD = 4
NOT_SERVED = "this version of the extender does not serve that `decide`"
FIRST_SHARE = 0.8
"""Of a burst's pods, those that exist before the scheduler starts: enough for it while creations lag behind on a busy machine."""
BOUND_PER_CREATION = 4
TURN_SECONDS = 0.005
"""How often a creation that is not due looks again; a pod takes longer to be bound."""
BURST_SECONDS = 180
"""A burst takes 5 to 15 s; one that takes this long has lost a pod."""

STALE_GOAL_PERCENT, STALE_FLOOR_PERCENT = 0.5, 0.75

StartExtender = Callable[[ControlPlane], AbstractContextManager[ExtenderProgram]]


@dataclass(frozen=True, slots=True)
class SchedulerSetup:
    """One setup in the comparison."""

    key: str
    description: str
    start_extender: StartExtender | None = None
    decide: str = ""
    """The setting `decide` of our extender; empty if it is not ours."""
    runs_score_plugins: bool = True
    """Whether the scheduler's own score plugins run."""


@dataclass(frozen=True, slots=True)
class PodBurst:
    """The result of one burst, all of whose pods were bound."""

    pods_per_second: float
    counted_pods: int
    """Pods bound while CPU time was counted."""
    waiting_pods: int
    """Pods not bound when the last one was created: a fifth of all, less what creations lagged behind."""
    cpu_usage: CpuUsage
    stale_binding_percent: float | None = None
    """For our extender: Bindings sent again because the pod had changed, per hundred pods."""

    def cpu_ms_per_pod(self, program: str) -> float:
        """CPU time of a program per counted pod, in ms."""
        return 1000 * self.cpu_usage.seconds_by_process.get(program, 0.0) / self.counted_pods


def _build_our_setup(key: str, what: str, decide: str, *, runs_score_plugins: bool = True) -> SchedulerSetup:
    return SchedulerSetup(key, what, partial(run_our_extender, decide=decide), decide, runs_score_plugins)


SETUPS = (
    SchedulerSetup("none", "no extender"),
    SchedulerSetup("idle", "an extender that does nothing", run_idle_extender),
    _build_our_setup("prioritize", "decide: prioritize", "prioritize"),
    _build_our_setup("filter", "decide: filter", "filter"),
    _build_our_setup("auto", "decide: auto", "auto"),
    _build_our_setup("no-scores", "decide: prioritize, score plugins off", "prioritize", runs_score_plugins=False),
)


@dataclass(frozen=True, slots=True)
class PaceRatio:
    """The pace of one setup relative to another, and what the ratio must reach."""

    setup_key: str
    baseline_key: str
    goal: float
    floor: float


RATIOS = (
    PaceRatio("prioritize", "idle", goal=0.9, floor=0.75),
    PaceRatio("filter", "idle", goal=1.2, floor=1.05),
    PaceRatio("filter", "none", goal=0.8, floor=0.65),
)
CPU_BOUNDS = {"prioritize": (1.6, 2.6), "filter": (1.3, 2.1)}
"""By setup of ours, goal and floor of the extender's CPU time per pod relative to that of the extender that does nothing."""


def measure_rows(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """Measure on a separate control plane."""
    with run_control_plane() as cluster:
        yield from measure_rows_on(cluster, options)


def measure_rows_on(cluster: ControlPlane, options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """Each setup's pace, then the ratios. The cluster must be empty at first."""
    add_nodes(cluster, options.scale_count(NODES))
    bursts = measure_bursts(
        cluster, pods=options.scale_count(PODS_IN_BURST), rounds=options.scale_count(ROUNDS, minimum=1)
    )
    for kind in SETUPS:
        yield _build_pace_row(kind, bursts[kind.key])
    for ratio in RATIOS:
        yield _build_ratio_row(ratio, bursts)
    for key in CPU_BOUNDS:
        yield _build_cpu_row(key, bursts)
    percents = [each.stale_binding_percent for kind in bursts.values() for each in kind]
    yield build_stale_row("rate-stale", "in the bursts", COMMAND, [each for each in percents if each is not None])


def measure_bursts(cluster: ControlPlane, *, pods: int, rounds: int) -> Mapping[str, Sequence[PodBurst]]:
    """By setup, one burst of each round; none for a setup that this version does not serve."""
    bursts: dict[str, list[PodBurst]] = {kind.key: [] for kind in SETUPS}
    served = [kind for kind in SETUPS if _is_served(kind.decide)]
    for kind in served * rounds:
        bursts[kind.key].append(run_burst(cluster, kind, pods))
    return bursts


def run_burst(cluster: ControlPlane, setup: SchedulerSetup, count: int) -> PodBurst:
    """Create pods while others are being bound, check the result, and delete them."""
    creations = [("POST", PODS, pod_manifest(f"p{number}", UNITS_PER_POD)) for number in range(count)]
    first_count = count_first_pods(count)
    send_calls(cluster, creations[:first_count])
    with ExitStack() as stack:
        extender = stack.enter_context(setup.start_extender(cluster)) if setup.start_extender else None
        watch = stack.enter_context(BoundPodWatch(cluster))
        process = stack.enter_context(run_scheduler(cluster, _build_configuration(cluster, setup), extender))
        already = watch.bound_count
        meter = CpuMeter(collect_pids(cluster) | {"scheduler": process.pid} | _list_extender_pid(extender))
        send_calls(cluster, creations[first_count:], wait_turn=partial(_wait_bound, cluster, watch))
        waiting = count - watch.bound_count
        cluster.wait_until(
            lambda: watch.bound_count >= count, BURST_SECONDS, what=lambda: f"bound: {watch.bound_count} of {count}"
        )
        usage = meter.read_usage()
        stale = read_stale_binding_percent(extender, count) if extender and setup.decide else None
        made = PodBurst(_compute_pace(watch), count - already, waiting, usage, stale)
    if setup.decide:
        _check_cluster(cluster, setup)
    delete_pods(cluster)
    return made


def count_first_pods(count: int) -> int:
    """How many pods of a burst exist before the scheduler starts."""
    return int(count * FIRST_SHARE)


def is_creation_due(creation: int, bound_count: int) -> bool:
    """Whether the other pod of this number, from 0, is to be created once so many are bound."""
    return bound_count > creation * BOUND_PER_CREATION


def read_stale_binding_percent(extender: ExtenderProgram, pods: int) -> float:
    """Bindings that this extender sent again because the pod had changed, per hundred bound pods."""
    return 100 * read_metric(extender, "vrampack_stale_bindings_total") / pods


def build_stale_row(key: str, when: str, command: str, percents: Sequence[float]) -> BenchmarkRow:
    """A row with the highest of these percentages."""
    return BenchmarkRow(
        key,
        f"Bindings sent twice because the pod had changed, {when}",
        command,
        max(percents, default=None),
        "%",
        STALE_GOAL_PERCENT,
        STALE_FLOOR_PERCENT,
    )


def _wait_bound(cluster: ControlPlane, watch: BoundPodWatch, creation: int) -> None:
    cluster.wait_until(
        lambda: is_creation_due(creation, watch.bound_count),
        BURST_SECONDS,
        what=lambda: f"bound: {watch.bound_count}, so creation {creation} is not due",
        interval_seconds=TURN_SECONDS,
    )


def _compute_pace(watch: BoundPodWatch) -> float:
    """Pods bound per second; the first one starts the clock, so it does not count."""
    times = sorted(watch.read_bind_times().values())
    return (len(times) - 1) / (times[-1] - times[0])


def _build_configuration(cluster: ControlPlane, kind: SchedulerSetup) -> Json:
    made = read_second_scheduler_config(cluster)
    if not kind.runs_score_plugins:
        made["profiles"][0]["plugins"]["score"]["disabled"] = [{"name": "*"}]
    return made


def _check_cluster(cluster: ControlPlane, kind: SchedulerSetup) -> None:
    """Check that the pace is worth something: every pod has a record, and no card is overcommitted."""
    broken = audit_cluster(cluster, transcript=Path("none"))
    if broken:
        raise RuntimeError(f"{kind.key}: the auditor reports:\n{broken}")


def _list_extender_pid(extender: ExtenderProgram | None) -> dict[str, int]:
    return {"extender": extender.process.pid} if extender else {}


def _is_served(decide: str) -> bool:
    try:
        ExtenderConfiguration.model_validate(
            {"apiVersion": "vrampack.dev/v1", "kind": "ExtenderConfiguration", "decide": decide or "prioritize"}
        )
    except ValidationError:
        return False
    return True


def _build_pace_row(kind: SchedulerSetup, bursts: Sequence[PodBurst]) -> BenchmarkRow:
    figure = median(each.pods_per_second for each in bursts) if bursts else None
    what = f"pods bound per second: {kind.description}"
    note = _format_note(bursts) if bursts else NOT_SERVED
    return BenchmarkRow(
        f"rate-{kind.key}", what, COMMAND, figure, "pods/s", None, None, larger_is_better=True, note=note
    )


def _build_ratio_row(ratio: PaceRatio, bursts: Mapping[str, Sequence[PodBurst]]) -> BenchmarkRow:
    key = f"rate-{ratio.setup_key}-to-{ratio.baseline_key}"
    kinds = {kind.key: kind for kind in SETUPS}
    pairs = list(zip(bursts[ratio.setup_key], bursts[ratio.baseline_key], strict=False))
    each = [ours.pods_per_second / theirs.pods_per_second for ours, theirs in pairs]
    return BenchmarkRow(
        key,
        f"{kinds[ratio.setup_key].description}, beside {kinds[ratio.baseline_key].description}",
        COMMAND,
        median(each) if each else None,
        "x",
        ratio.goal,
        ratio.floor,
        larger_is_better=True,
        note="each round: " + ", ".join(f"{one:.2f}" for one in each) if each else NOT_SERVED,
    )


def _build_cpu_row(key: str, bursts: Mapping[str, Sequence[PodBurst]]) -> BenchmarkRow:
    goal, floor = CPU_BOUNDS[key]
    pairs = [
        (ours.cpu_ms_per_pod("extender"), theirs.cpu_ms_per_pod("extender"))
        for ours, theirs in zip(bursts[key], bursts["idle"], strict=False)
    ]
    return BenchmarkRow(
        f"rate-{key}-cpu-to-idle",
        f"CPU time of the extender per pod, decide: {key}, beside one that does nothing",
        COMMAND,
        median(ours / theirs for ours, theirs in pairs) if pairs else None,
        "x",
        goal,
        floor,
        note="each round, ms: " + ", ".join(f"{ours:.2f} by {theirs:.2f}" for ours, theirs in pairs)
        if pairs
        else NOT_SERVED,
    )


def _format_note(bursts: Sequence[PodBurst]) -> str:
    programs = ("scheduler", "extender", "kube-apiserver")
    costs = {name: median(each.cpu_ms_per_pod(name) for each in bursts) for name in programs}
    shown = ", ".join(f"{name} {cost:.1f}" for name, cost in costs.items() if cost)
    others = max(each.cpu_usage.other_cores for each in bursts)
    waiting = min(each.waiting_pods for each in bursts)
    return (
        f"CPU ms per pod: {shown}; others kept {others:.1f} cores busy; {waiting} pods waited when the last was created"
    )
