"""Which changes of the ledger signal that a waiting pod may fit now, and where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from extender.state.ledger import Ledger
from extender.state.ledger_drift import count_drift_units
from tests.support.builders import UNIT_MIB, ledger_pod, node_facts
from tests.support.ledger_recorder import LedgerRecorder
from vrampack.cards.allocation import allocate_cards
from vrampack.cards.node import Share
from vrampack.cards.records import Record

OURS = Record("vrampack", (Share(4, "GPU-0", 0),))


class ListenedLedger:
    """A ledger with a node `n` of one card of 15 units, and what it told since."""

    def __init__(self) -> None:
        self.ledger = Ledger(unit_mib=UNIT_MIB, clock=lambda: 0.0)
        self.recorder = LedgerRecorder()
        self.ledger.update_node(node_facts("n", 15))
        self.ledger.add_listener(self.recorder)

    def assume(self) -> None:
        node = self.ledger.get_node("n")
        pod = ledger_pod()
        assert node is not None
        assert pod.request is not None
        self.ledger.assume(pod, "n", allocate_cards(node, node.cards, pod.request))


@pytest.fixture
def harness() -> ListenedLedger:
    return ListenedLedger()


def test_a_confirmed_reservation_gains_no_capacity(harness: ListenedLedger) -> None:
    harness.assume()
    harness.ledger.update_pod(ledger_pod(node="n", record=OURS))
    harness.ledger.update_pod(ledger_pod(node="n", record=OURS, leaving=True))
    assert harness.recorder.capacity_gains == 0


def test_a_deleted_pod_gains_capacity(harness: ListenedLedger) -> None:
    harness.ledger.update_pod(ledger_pod(node="n", record=OURS))
    harness.ledger.remove_pod("p")
    assert harness.recorder.capacity_gains == 1


def test_units_that_the_scheduler_counts_as_free_again_are_capacity() -> None:
    """No card gains room: the pod is on a faulty one, whose units kubelet does not offer."""
    facts = node_facts("n", 15, 15)
    facts = replace(facts, cards=(replace(facts.cards[0], healthy=False), facts.cards[1]), offered_units=15)
    ledger, recorder = Ledger(unit_mib=UNIT_MIB, clock=lambda: 0.0), LedgerRecorder()
    ledger.update_node(facts)
    ledger.update_pod(ledger_pod("on-faulty", units=4, node="n", record=OURS))
    ledger.add_listener(recorder)
    assert ledger.nodes.get_unasked_units("n") == 15 - 4
    ledger.remove_pod("on-faulty")
    assert (ledger.nodes.get_unasked_units("n"), recorder.capacity_gains) == (15, 1)
    ledger.update_node(replace(facts, offered_units=30))
    assert (ledger.nodes.get_unasked_units("n"), recorder.capacity_gains) == (30, 2)
    ledger.update_node(replace(facts, offered_units=15))
    assert (ledger.nodes.get_unasked_units("n"), recorder.capacity_gains) == (15, 2)
    ledger.remove_node("n")
    assert ledger.nodes.get_unasked_units("n") is None


def test_the_scheduler_counts_no_pod_whose_binding_was_not_answered() -> None:
    ledger, recorder = Ledger(unit_mib=UNIT_MIB, clock=lambda: 0.0), LedgerRecorder()
    ledger.update_node(replace(node_facts("n", 15), offered_units=15))
    ledger.add_listener(recorder)
    node, pod = ledger.get_node("n"), ledger_pod(units=4)
    assert node is not None
    assert pod.request is not None
    ledger.assume(pod, "n", allocate_cards(node, node.cards, pod.request))
    assert (ledger.nodes.get_unasked_units("n"), recorder.capacity_gains) == (11, 0)
    ledger.mark_unconfirmed("p", "n")
    assert (ledger.nodes.get_unasked_units("n"), recorder.capacity_gains) == (15, 1)
    ledger.record_binding("p", "n", "2")  # another one is sent
    assert ledger.nodes.get_unasked_units("n") == 11
    ledger.mark_unconfirmed("p", "n")
    ledger.mark_written("p", "n")
    assert (ledger.nodes.get_unasked_units("n"), count_drift_units(ledger, "n")) == (11, 0)
    ledger.update_pod(ledger_pod(units=4, node="n", record=OURS))
    assert (ledger.nodes.get_unasked_units("n"), recorder.capacity_gains) == (11, 2)


def test_a_refused_bind_gives_room(harness: ListenedLedger) -> None:
    harness.assume()
    harness.ledger.forget("p", "n")
    harness.ledger.forget("p", "n")
    assert harness.recorder.capacity_gains == 1


def test_a_healed_card_gives_room(harness: ListenedLedger) -> None:
    facts = node_facts("n", 15)
    harness.ledger.update_node(replace(facts, cards=(replace(facts.cards[0], healthy=False),)))
    assert harness.recorder.capacity_gains == 0
    harness.ledger.update_node(facts)
    assert harness.recorder.capacity_gains == 1


def test_a_new_or_returning_node_gains_capacity(harness: ListenedLedger) -> None:
    harness.ledger.update_node(node_facts("m", 15))
    harness.ledger.remove_node("n")
    assert harness.recorder.capacity_gains == 1
    harness.ledger.update_node(node_facts("n", 15))
    assert harness.recorder.capacity_gains == 2


def test_nodes_that_gained_capacity_are_listed_latest_first(harness: ListenedLedger) -> None:
    before = harness.ledger.capacity_generation
    for name in ("m", "o"):
        harness.ledger.update_node(node_facts(name, 15))
    harness.ledger.update_node(node_facts("m", 15, 15))
    found = [
        (at - before, node.name, len(node.cards)) for at, node in harness.ledger.nodes.list_nodes_gained_since(before)
    ]
    assert found == [(3, "m", 2), (2, "o", 1)]
    harness.ledger.remove_node("m")
    assert [node.name for _, node in harness.ledger.nodes.list_nodes_gained_since(before)] == ["o"]


def test_an_unbound_pod_is_reported_once(harness: ListenedLedger) -> None:
    harness.ledger.update_pod(ledger_pod("a"))
    harness.ledger.update_pod(ledger_pod("a"))
    harness.ledger.update_pod(ledger_pod("b", node="n", record=OURS))
    harness.ledger.update_pod(ledger_pod("c", finished=True))
    assert harness.recorder.added == ["a"]


def test_a_policy_change_counts_as_capacity_on_every_node(harness: ListenedLedger) -> None:
    """Full nodes, too: rejected pods are tried again, once."""
    harness.ledger.update_node(node_facts("m", 15))
    harness.assume()
    harness.ledger.remove_node("m")
    harness.ledger.update_node(node_facts("o", 15))
    before, grew = harness.ledger.capacity_generation, harness.recorder.capacity_gains
    harness.ledger.apply_policy_change()
    assert harness.recorder.capacity_gains == grew + 1
    assert {node.name for _, node in harness.ledger.nodes.list_nodes_gained_since(before)} == {"n", "o"}
    assert harness.ledger.nodes.list_nodes_gained_since(harness.ledger.capacity_generation) == []


def test_capacity_gained_after_a_policy_change_is_newer(harness: ListenedLedger) -> None:
    harness.ledger.apply_policy_change()
    before = harness.ledger.capacity_generation
    harness.ledger.update_node(node_facts("m", 15))
    assert [node.name for _, node in harness.ledger.nodes.list_nodes_gained_since(before)] == ["m"]
    assert [node.name for _, node in harness.ledger.nodes.list_nodes_gained_since(before - 1)] == ["m", "n"]


RESOLVING = {
    "bound": lambda ledger: ledger.update_pod(ledger_pod("a", node="n", record=OURS)),
    "terminating": lambda ledger: ledger.update_pod(ledger_pod("a", leaving=True)),
    "finished": lambda ledger: ledger.update_pod(ledger_pod("a", finished=True)),
    "gone": lambda ledger: ledger.remove_pod("a"),
}


@pytest.mark.parametrize("resolve", RESOLVING.values(), ids=RESOLVING)
def test_a_pod_that_no_longer_needs_a_place_is_reported(
    harness: ListenedLedger, resolve: Callable[[Ledger], None]
) -> None:
    harness.ledger.update_pod(ledger_pod("a"))
    assert harness.recorder.resolved == []
    resolve(harness.ledger)
    assert harness.recorder.resolved == ["a"]


def test_every_listener_is_notified(harness: ListenedLedger) -> None:
    second = LedgerRecorder()
    harness.ledger.add_listener(second)
    harness.ledger.update_node(node_facts("m", 15))
    harness.ledger.update_pod(ledger_pod("a"))
    harness.ledger.remove_pod("a")
    harness.ledger.update_pod(ledger_pod("b", node="n", units=16, record=Record("vrampack", (Share(16, "GPU-0", 0),))))
    for recorder in (harness.recorder, second):
        assert (recorder.capacity_gains, recorder.added, recorder.resolved) == (1, ["a"], ["a", "b"])
        assert [problem.kind for problem in recorder.problems] == ["overcommitted"]
