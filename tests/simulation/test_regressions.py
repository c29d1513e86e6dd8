"""Runs worth keeping: those that found a bug in the product, and orders of events that seeds meet too rarely.

Each holds now, and breaks a promise again with the bug put back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from tests.simulation import bugs
from tests.simulation.run import SimulationCase, run_case
from tests.simulation.step import Step
from tests.simulation.step_sequences import ON_ITS_WAY, ONE_POD, answer, hears
from tests.simulation.world import SimulationSettings, draw_settings

LONG, SHORT = 5, 2
"""What `pick` of a wait means: 3.1 s, after which a reservation is looked up, and 1.0 s, after which a list begins."""


def list_begins() -> Sequence[Step]:
    return (Step("break", 0, 3, "e0 pods"), Step("wait", SHORT))


def filtered_and_bound(pod: str, node: str) -> Sequence[Step]:
    return (Step("filter", 0, 0, pod), Step("bind", 0, 0, f"e0 {pod} {node}"))


BOUND_UNHEARD = (*filtered_and_bound("p1", "n0"), answer("bind p1 to n0"), Step("wait", LONG))
"""Its Binding is written, the watch has not said so, and a look-up of it is under way."""
ANOTHER = (Step("create", 0, 3, "p2"), *filtered_and_bound("p2", "n0"), answer("get p2"), answer("bind p2 to n0"))
"""Bound to n0 only where the extender believes that there is room."""

LANDS_LATE = Step("land", 0, 1, "e0 bind p1 to n0")
LOST, CONFLICT = 85, 97
"""How a Binding is answered that may still be done: not at all, and with the 409 of an API server whose etcd timed out."""

RUNS: Mapping[str, tuple[Sequence[Step], Callable[[pytest.MonkeyPatch], None]]] = {
    "a deletion overtakes a look-up": (
        (
            *ONE_POD,
            *BOUND_UNHEARD,
            answer("get p1", ON_ITS_WAY),
            Step("delete", 0, 1, "p1"),
            hears(),
            hears(),
            hears(),
            answer("get p1"),
        ),
        bugs.believe_a_look_up_that_the_watch_overtook,
    ),
    "a pod is looked up while a list begins, and deleted before its snapshot": (
        (*ONE_POD, *BOUND_UNHEARD, *list_begins(), answer("get p1"), Step("delete", 0, 1, "p1"), answer("list pods")),
        bugs.keep_what_was_looked_up_during_a_list,
    ),
    "an older event comes after a look-up": (
        (*ONE_POD, *BOUND_UNHEARD, answer("get p1"), Step("tell again", 0, 0, "e0 pods"), *ANOTHER),
        bugs.believe_an_older_event,
    ),
    "an older list comes after a look-up": (
        (
            *ONE_POD,
            *list_begins(),
            answer("list pods", ON_ITS_WAY),
            *BOUND_UNHEARD,
            answer("get p1"),
            answer("list pods"),
            *ANOTHER,
        ),
        bugs.believe_a_list_that_a_look_up_overtook,
    ),
    "a Binding lands after a look-up showed the pod unbound": (
        (
            *ONE_POD,
            *filtered_and_bound("p1", "n0"),
            answer("bind p1 to n0", LOST),
            answer("get p1"),
            Step("wait", LONG),
            answer("get p1"),
            *ANOTHER,
            LANDS_LATE,
        ),
        bugs.release_what_a_look_up_shows_unbound,
    ),
    "a Binding lands after it was fenced": (
        (
            *ONE_POD,
            *filtered_and_bound("p1", "n0"),
            answer("bind p1 to n0", LOST),
            answer("get p1"),
            Step("wait", LONG),
            answer("get p1"),
            answer("patch p1"),
            *ANOTHER,
            LANDS_LATE,
        ),
        bugs.bind_at_any_version,
    ),
    "a Binding lands after a conflict": (
        (
            *ONE_POD,
            *filtered_and_bound("p1", "n0"),
            answer("bind p1 to n0", CONFLICT),
            answer("get p1"),
            *ANOTHER,
            LANDS_LATE,
        ),
        bugs.take_any_conflict_for_a_no,
    ),
}


@pytest.fixture(scope="module")
def around() -> SimulationSettings:
    return draw_settings()


@pytest.mark.parametrize("name", RUNS)
def test_the_promises_hold_without_the_bug(name: str, around: SimulationSettings) -> None:
    assert run_case(SimulationCase("honest", RUNS[name][0]), around).failure is None


@pytest.mark.parametrize("name", RUNS)
def test_a_promise_breaks_with_the_bug(name: str, around: SimulationSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    RUNS[name][1](monkeypatch)
    assert run_case(SimulationCase("honest", RUNS[name][0]), around).failure is not None
