"""Runs one seed: steps until so many calls were made, then no more faults until nothing is open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from extender.metrics import ExtenderMetrics
from tests.brute_force.checks import JudgedVerbs
from tests.brute_force.steps import DrawnSteps
from tests.brute_force.world import BruteForceWorld, WrongAnswerError
from tests.simulation.world import reflectors_without_chance

CALLS_PER_WORLD = 125
TRACED_STEPS = 40
SETTLE_ROUNDS, SETTLE_SECONDS = 24, 2.0
"""A place is looked up every 15 s at least."""


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """What a seed has shown."""

    calls: Counter[str]
    """By verb."""
    reasons: frozenset[str]
    """All that filter gave."""
    trace: Sequence[str]


def run_world(seed: int, metrics: ExtenderMetrics, calls: int = CALLS_PER_WORLD) -> FinishedRun:
    """Until so many calls were made. Raises `WrongAnswerError` with the last steps."""
    with _open_world(seed, metrics) as world:
        verbs = JudgedVerbs(world)
        steps = DrawnSteps(world, verbs)
        try:
            world.start()
            while verbs.calls.total() < calls:
                steps.take_step()
            _settle(world, verbs)
        except Exception as error:  # whatever a verb raises is a wrong answer, too
            what = str(error) if isinstance(error, WrongAnswerError) else repr(error)
            raise WrongAnswerError("\n".join((f"seed {seed}: {what}", *world.trace[-TRACED_STEPS:]))) from error
    return FinishedRun(verbs.calls, frozenset(verbs.reasons), world.trace)


@contextmanager
def _open_world(seed: int, metrics: ExtenderMetrics) -> Iterator[BruteForceWorld]:
    worlds: list[BruteForceWorld] = []
    with reflectors_without_chance(lambda: worlds[0].seconds if worlds else 0.0):
        worlds.append(BruteForceWorld(seed, metrics))
        try:
            yield worlds[0]
        finally:
            worlds[0].close()


def _settle(world: BruteForceWorld, verbs: JudgedVerbs) -> None:
    """No more faults: everything is answered and heard, and time passes until nothing is open."""
    world.throttled_until = 0.0
    for _ in range(SETTLE_ROUNDS):
        world.answer_all()
        world.pass_time(SETTLE_SECONDS)
        world.send_bookmarks()
        watched = {stream.resource for stream in world.network.streams if stream.is_open}
        if len(watched) == 2 and not (world.process.ledger.places.list_reservations() or verbs.binds):
            break
    world.answer_all()
    verbs.check_end()
