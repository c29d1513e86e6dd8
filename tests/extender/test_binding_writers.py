"""Another extender that binds pods beside this one is noticed; changes of leader, however bumpy, are not taken for one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count

import pytest

from extender.metrics import ExtenderMetrics
from extender.state.binding_writers import BindingWriters
from extender.state.ledger import Ledger
from tests.support.builders import UNIT_MIB, ledger_pod, node_facts
from tests.support.own_events import OwnEvents
from vrampack.cards.allocation import allocate_cards
from vrampack.cards.node import Share
from vrampack.cards.records import Record

RECORD = Record("vrampack", (Share(1, "GPU-0", 0),))


class WatchedBindings:
    """One process, and the Bindings that its watch shows."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.metrics = ExtenderMetrics("test")
        self.events = OwnEvents(self.metrics)
        self.ledger = Ledger(unit_mib=UNIT_MIB, clock=self.clock)
        self.ledger.update_node(node_facts("n", 1000))
        self.writers = BindingWriters(
            self.ledger, self.events, self.metrics, ledger_pod("extender-0"), clock=self.clock
        )
        self._names = count()

    def clock(self) -> float:
        return self.seconds

    def show_binding(self, seconds: float, *, is_own: bool, record: Record | None = RECORD) -> None:
        """A pod that this process, or another one, has bound by then."""
        self.seconds = seconds
        pod = ledger_pod(f"pod-{next(self._names)}", units=1)
        self.ledger.update_pod(pod)
        node = self.ledger.get_node("n")
        assert node is not None
        assert pod.request is not None
        if is_own:
            self.ledger.assume(pod, "n", allocate_cards(node, node.cards[:1], pod.request))
            self.ledger.mark_written(pod.uid, "n")
        bound = replace(pod, node_name="n", record=record)
        self.writers.observe_pod(bound)
        self.ledger.update_pod(bound)
        self.writers.observe_pod(bound)  # a later change of the pod is no Binding

    def show_bindings(self, *phases: tuple[str, Iterable[float]]) -> None:
        for writer, times in phases:
            for seconds in times:
                self.show_binding(seconds, is_own=writer == "this")

    @property
    def found(self) -> float:
        return float(self.metrics.second_extender._value.get())


@pytest.mark.parametrize("pause", [0.5, 3, 7.5, 15])
def test_two_that_bind_at_once_are_noticed_within_a_minute(pause: float) -> None:
    """Each binds a pod in every pause; at last the other one is stopped."""
    bindings = WatchedBindings()
    for at in range(int(60 / pause) + 1):
        bindings.show_binding(at * pause, is_own=at % 2 == 0)
    assert bindings.found >= 1
    assert {each[:2] for each in bindings.events.asked} == {("extender-0", "GPUMemorySecondExtender")}
    found = bindings.found
    bindings.show_bindings(("this", range(60, 300)))
    assert bindings.found == found


CHANGES: dict[str, list[tuple[str, Iterable[float]]]] = {
    "no other one": [("this", range(300))],
    "a standby": [("other", range(300))],
    "it becomes the leader": [("other", range(100)), ("this", range(100, 300))],
    "another one becomes the leader": [("this", range(100)), ("other", range(100, 300))],
    "it leads between two others during a rolling update": [
        ("other", range(10)),
        ("this", range(10, 20)),
        ("other", range(20, 300)),
    ],
    "Bindings of the one before land late": [
        ("other", range(10)),
        *((writer, [10 + at / 10]) for at, writer in enumerate(("this", "other") * 20)),
        ("this", range(14, 300)),
    ],
    "the one before was paused, and all it had sent lands at once": [
        ("other", range(10)),
        ("this", range(25, 40)),
        ("other", [40, 40.1, 40.2]),
        ("this", range(41, 300)),
    ],
    "both schedulers crash, one after the other": [
        ("this", range(10)),
        ("other", range(26, 40)),
        ("this", range(56, 300)),
    ],
    "the lead changes as often as leases of 15 s allow": [
        (writer, range(at * 17, at * 17 + 17)) for at, writer in enumerate(("this", "other") * 10)
    ],
}


@pytest.mark.parametrize("phases", CHANGES.values(), ids=CHANGES)
def test_changes_of_leader_raise_nothing(phases: list[tuple[str, Iterable[float]]]) -> None:
    bindings = WatchedBindings()
    bindings.show_bindings(*phases)
    assert (bindings.found, bindings.events.asked) == (0, [])


def test_pods_that_no_extender_bound_are_not_another_ones() -> None:
    """A pod without a record was bound by hand, which has an event of its own."""
    bindings = WatchedBindings()
    for at in range(60):
        bindings.show_binding(at, is_own=at % 2 == 0, record=RECORD if at % 2 == 0 else None)
    assert bindings.found == 0
