"""Tens of thousands of steps in `make test`, a million in `make soak`, and the same failure again for its repair.

`VRAMPACK_SIMULATION_SEEDS=10000` runs more seeds; `VRAMPACK_SIMULATION_FIRST=381` begins at another one. A seed that
fails prints the shortest run that fails in the same way; keep its steps in `test_regressions.py`.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.run import SimulationCase, a_case, report_failure, run_case, shrink_case
from tests.simulation.step import Step
from tests.simulation.step_sequences import ONE_POD
from tests.simulation.steps import STEPS
from tests.simulation.world import SimulationSettings, draw_settings

PARTS = 5
SEEDS = int(os.environ.get("VRAMPACK_SIMULATION_SEEDS", "160"))
FIRST = int(os.environ.get("VRAMPACK_SIMULATION_FIRST", "0"))
STEPS_TAKEN = 130
"""Of 250 steps of a seed so many do something, on average; 160 seeds are more than 20,000.

Twice as many seeds as `test_finds_bugs` needs for every bug it knows.
"""


@pytest.fixture(scope="module")
def around() -> SimulationSettings:
    return draw_settings()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_order_of_events_breaks_a_promise(around: SimulationSettings, part: int) -> None:
    seeds = range(FIRST + part, FIRST + SEEDS, PARTS)
    taken = 0
    for seed in seeds:
        case = a_case(seed)
        result = run_case(case, around)
        taken += len(result.taken)
        assert result.failure is None, report_failure(seed, case, around)
    assert taken >= STEPS_TAKEN * len(seeds)


def test_the_same_seed_gives_the_same_run(around: SimulationSettings) -> None:
    for seed in range(6):
        assert run_case(a_case(seed), around).trace == run_case(a_case(seed), around).trace


def test_steps_by_name_give_the_same_run(around: SimulationSettings) -> None:
    """A trace is made of these; every step that did nothing is left out of it."""
    for seed in range(6):
        case = a_case(seed)
        first = run_case(case, around)
        assert run_case(SimulationCase(case.mode, first.taken, case.is_shuffled), around).trace == first.trace


def test_every_kind_of_step_happens(around: SimulationSettings) -> None:
    missing = set(STEPS)
    for seed in range(24):
        missing -= {step.name for step in run_case(a_case(seed), around).taken}
        if not missing:
            return
    assert missing == set()


def test_simulated_answers_include_lost_late_refused_and_foreign_ones(around: SimulationSettings) -> None:
    missing = {
        "done, the answer is lost",
        "it may still be done",
        "done, the answer is on its way",
        "done late (written)",
        "409 Conflict",
        "410 Expired",
        "429",
        "hears again",
        "the answer is replaced by (503",
        "the answer is replaced by (200",
        "403",
        "bind once more",
    }
    for seed in range(48):
        trace = "\n".join(run_case(a_case(seed), around).trace)
        missing = {words for words in missing if words not in trace}
        if not missing:
            return
    assert missing == set()


def test_a_failing_run_is_shortened(around: SimulationSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a hundred steps, only those that the failure needs remain."""
    monkeypatch.setattr("extender.state.sync.PodSink.on_deleted", lambda *_: None)
    seed = next(seed for seed in range(20) if run_case(a_case(seed), around).failure)
    case = a_case(seed)
    first = run_case(case, around)
    assert first.failure is not None
    small = shrink_case(SimulationCase(case.mode, first.taken, case.is_shuffled), first.failure, around)
    assert len(small.steps) <= 8
    assert any(step.name in ("delete", "recreate") for step in small.steps)


def test_a_report_names_the_seed_the_promise_and_the_steps(
    around: SimulationSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extender.state.sync.PodSink.on_deleted", lambda *_: None)
    deletion = Step("delete", target="p1", how=1)
    text = report_failure(0, SimulationCase("honest", [*ONE_POD, deletion]), around)
    assert text.startswith("seed 0 (honest): I3: e0 has")
    assert "Step('delete', 0, 1, 'p1')," in text
