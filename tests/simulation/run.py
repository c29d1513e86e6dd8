"""Runs steps, lets everything settle, and makes a failing run short."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.simulation.invariants import BrokenPromiseError, InvariantChecker
from tests.simulation.step import Step, resolved
from tests.simulation.steps import some_steps, take_step
from tests.simulation.world import Mode, SimulationSettings, SimulationWorld, simulation_world

STEPS_PER_SEED = 250
ROUNDS, ROUND_SECONDS = 45, 2.0
"""90 s: a place whose Binding got no answer is looked up every 30 s at least."""
SHRINKING_RUNS = 600


@dataclass(frozen=True, slots=True)
class SimulationCase:
    """Everything a run depends on."""

    mode: Mode
    steps: Sequence[Step]
    is_shuffled: bool = False


@dataclass(slots=True)
class SimulationResult:
    """What a run did, and what it broke."""

    taken: list[Step] = field(default_factory=list)
    """The steps that did something, by name."""
    trace: list[str] = field(default_factory=list)
    failure: BrokenPromiseError | None = None


def a_case(seed: int, *, count: int = STEPS_PER_SEED) -> SimulationCase:
    """Half of the seeds run one extender alone, a third add other writers, the rest run two extenders."""
    modes: tuple[Mode, ...] = ("honest", "honest", "hostile", "honest", "hostile", "two")
    mode = modes[seed % 6]
    return SimulationCase(mode, some_steps(seed, mode, count), is_shuffled=seed % 4 == 3)


def run_case(case: SimulationCase, around: SimulationSettings) -> SimulationResult:
    result = SimulationResult()
    with simulation_world(case.mode, around, is_shuffled=case.is_shuffled) as world:
        judge = InvariantChecker(world)
        try:
            for step in case.steps:
                world.chosen = ""
                if (did := take_step(world, step)) is not None:
                    result.taken.append(resolved(step, world.chosen))
                    result.trace.append(f"{world.seconds:7.2f}  {did}")
                    world.run_ready()
                    judge.check_step()
            settle_world(world, judge)
            judge.check_settled()
        except BrokenPromiseError as failure:
            result.failure = failure
    return result


def settle_world(world: SimulationWorld, judge: InvariantChecker) -> None:
    """No more faults: everything is answered and heard, the scheduler tries again and again, time passes."""
    for turn in range(ROUNDS):
        _quiet(world)
        judge.check_step()
        if turn % 3 == 0:
            _schedule(world, turn)
        for stream in world.network.streams:
            stream.send("BOOKMARK", {"metadata": {"resourceVersion": str(world.store.version)}})
        world.seconds += ROUND_SECONDS
        world.run_ready()
    _quiet(world)


def _quiet(world: SimulationWorld) -> None:
    """Until no call is waiting."""
    for _ in range(100):
        while world.network.late:
            world.network.late.pop().execute()
        for call in tuple(world.network.calls):
            call.answer()
        for stream in world.network.streams:
            while stream.is_open and stream.feed.pending():
                stream.send_change(stream.feed.take(0))
        world.run_ready()
        if not world.network.calls and not any(stream.feed.pending() for stream in world.network.streams):
            return
    raise BrokenPromiseError("crash", "calls without end")


def _schedule(world: SimulationWorld, turn: int) -> None:
    """One after the other, and each is bound before the next is filtered."""
    processes = list(world.processes.values())
    for decided in world.decided:
        world.bind(decided.process, decided.pod, decided.uid, decided.node)
    world.decided.clear()
    _quiet(world)
    for pod in world.pending():
        process = processes[turn // 3 % len(processes)]
        ranked, _ = world.filter(process, pod)
        if ranked:
            world.bind(process.name, pod["metadata"]["name"], pod["metadata"]["uid"], ranked[0])
            _quiet(world)


def shrink_case(case: SimulationCase, broken: BrokenPromiseError, around: SimulationSettings) -> SimulationCase:
    """Fewer steps that break the same invariant: pieces are left out while it still breaks."""
    steps, size, runs = list(case.steps), max(1, len(case.steps) // 2), 0
    while True:
        removed = False
        for fewer in _without_pieces(steps, size):
            if (runs := runs + 1) > SHRINKING_RUNS:
                return SimulationCase(case.mode, steps, case.is_shuffled)
            failure = run_case(SimulationCase(case.mode, fewer, case.is_shuffled), around).failure
            if failure is not None and failure.invariant == broken.invariant:
                steps, removed = fewer, True
                break
        if not removed:
            if size == 1:
                return SimulationCase(case.mode, steps, case.is_shuffled)
            size = max(1, size // 2)


def _without_pieces(steps: list[Step], size: int) -> Iterator[list[Step]]:
    for start in range(max(0, len(steps) - size), -1, -size):
        yield steps[:start] + steps[start + size :]


def report_failure(seed: int, case: SimulationCase, around: SimulationSettings) -> str:
    """What to read when a seed fails: the shortest trace, and the steps to keep as a test."""
    first = run_case(case, around)
    if first.failure is None:
        return f"seed {seed} passes"
    small = shrink_case(SimulationCase(case.mode, first.taken, case.is_shuffled), first.failure, around)
    result = run_case(small, around)
    steps = "\n".join(f"    Step({step.name!r}, {step.pick}, {step.how}, {step.target!r})," for step in small.steps)
    head = f"seed {seed} ({case.mode}{', shuffled' if case.is_shuffled else ''}): {result.failure}"
    return "\n".join((head, "", *result.trace, "", "keep it as a test with these steps:", steps))
