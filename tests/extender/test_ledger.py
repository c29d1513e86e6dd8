"""The ledger, state by state: who holds what, from the first reservation to the last trace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.extender.ledger_harness import OURS, LedgerHarness
from tests.support.builders import ledger_pod, node_facts
from vrampack.cards.node import Share
from vrampack.cards.records import Record


@pytest.fixture
def harness() -> LedgerHarness:
    return LedgerHarness()


def test_assume_holds_the_place_at_once(harness: LedgerHarness) -> None:
    harness.ledger.assume(ledger_pod(), "n", harness.place(ledger_pod(), 0))
    assert harness.used() == [4, 0]


def test_an_unchanged_card_is_not_rebuilt(harness: LedgerHarness) -> None:
    before = harness.node().cards
    harness.ledger.assume(ledger_pod(), "n", harness.place(ledger_pod(), 0))
    assert [card is known for card, known in zip(harness.node().cards, before, strict=True)] == [False, True]
    harness.ledger.update_node(replace(node_facts("n", 15, 15), cordoned=frozenset({"GPU-1"})))
    assert [card.cordoned for card in harness.node().cards] == [False, True]


def test_forget_keeps_a_place_whose_binding_was_written(harness: LedgerHarness) -> None:
    harness.ledger.assume(ledger_pod(), "n", harness.place(ledger_pod(), 0))
    harness.ledger.mark_written("p", "n")
    harness.ledger.forget("p", "n")
    assert harness.used() == [4, 0]
    harness.ledger.remove_pod("p")
    assert harness.used() == [0, 0]


def test_forget_frees_the_reservation(harness: LedgerHarness) -> None:
    harness.ledger.assume(ledger_pod(), "n", harness.place(ledger_pod(), 0))
    harness.ledger.forget("p", "n")
    assert harness.used() == [0, 0]
    assert harness.ledger.places.list_reservations() == []


def test_an_event_that_shows_the_pod_bound_confirms_its_reservation(harness: LedgerHarness) -> None:
    harness.ledger.assume(ledger_pod(), "n", harness.place(ledger_pod(), 0))
    harness.ledger.update_pod(ledger_pod(node="n", record=OURS))
    assert harness.used() == [4, 0]
    assert harness.ledger.places.list_reservations() == []


def test_once_bound_the_record_counts_and_not_the_reservation(harness: LedgerHarness) -> None:
    """Another extender's Binding won: its cards are the truth."""
    harness.ledger.assume(ledger_pod(), "n", harness.place(ledger_pod(), 0))
    harness.ledger.update_pod(ledger_pod(node="n", record=Record("vrampack", (Share(4, "GPU-1", 1),))))
    assert harness.used() == [0, 4]


def test_once_bound_the_record_counts_and_not_the_labels(harness: LedgerHarness) -> None:
    harness.ledger.update_pod(ledger_pod(node="n", units=9, record=OURS))
    assert harness.used() == [4, 0]


def test_being_bound_elsewhere_ends_every_reservation(harness: LedgerHarness) -> None:
    harness.ledger.update_node(node_facts("m", 15))
    harness.ledger.assume(ledger_pod(), "n", harness.place(ledger_pod(), 0))
    harness.ledger.mark_unconfirmed("p", "n")
    harness.ledger.update_pod(ledger_pod(node="m", record=OURS))
    assert harness.used("n") == [0, 0]
    assert harness.used("m") == [4]


def test_an_unconfirmed_reservation_holds_until_the_pod_is_gone(harness: LedgerHarness) -> None:
    harness.ledger.update_pod(ledger_pod())
    harness.ledger.assume(ledger_pod(), "n", harness.place(ledger_pod(), 0))
    harness.ledger.mark_unconfirmed("p", "n")
    harness.ledger.update_pod(ledger_pod())
    assert harness.used() == [4, 0]
    assert harness.ledger.list_holds("n")[0].state == "unconfirmed"
    harness.ledger.remove_pod("p")
    assert harness.used() == [0, 0]


def test_a_terminating_pod_holds_its_memory_until_it_is_gone(harness: LedgerHarness) -> None:
    harness.ledger.update_pod(ledger_pod(node="n", record=OURS))
    harness.ledger.update_pod(ledger_pod(node="n", record=OURS, leaving=True))
    assert harness.used() == [4, 0]
    assert harness.ledger.list_holds("n")[0].state == "terminating"
    harness.ledger.remove_pod("p")
    assert harness.used() == [0, 0]


def test_a_finished_pod_holds_nothing(harness: LedgerHarness) -> None:
    harness.ledger.update_pod(ledger_pod(node="n", record=OURS))
    harness.ledger.update_pod(ledger_pod(node="n", record=OURS, finished=True))
    assert harness.used() == [0, 0]


def test_an_older_event_does_not_undo_a_look_up(harness: LedgerHarness) -> None:
    """The pod was looked up after a lost reply; the watch has not caught up with that look-up yet."""
    harness.ledger.update_fetched_pod(ledger_pod(node="n", record=OURS))
    harness.ledger.update_pod(ledger_pod())
    assert harness.used() == [4, 0]


def test_a_list_that_began_before_a_look_up_does_not_undo_it(harness: LedgerHarness) -> None:
    before = harness.ledger.begin_list()
    harness.ledger.update_fetched_pod(ledger_pod(node="n", record=OURS))
    harness.ledger.update_listed_pod(ledger_pod())
    harness.ledger.end_list(before, {"p"})
    assert harness.used() == [4, 0]


def test_a_pod_first_looked_up_during_a_list_is_kept_after_it(harness: LedgerHarness) -> None:
    """It was created after the list's snapshot, so the list does not name it."""
    before = harness.ledger.begin_list()
    harness.ledger.update_fetched_pod(ledger_pod("new", node="n", record=OURS))
    harness.ledger.end_list(before, set())
    assert harness.used() == [4, 0]


def test_a_look_up_during_a_list_does_not_keep_a_pod_missing_from_the_list(harness: LedgerHarness) -> None:
    """The pod was known before the list began and deleted by its snapshot: the answer to the look-up was older."""
    harness.ledger.update_pod(ledger_pod("old", node="n", record=OURS))
    before = harness.ledger.begin_list()
    harness.ledger.update_fetched_pod(ledger_pod("old", node="n", record=OURS))
    harness.ledger.end_list(before, set())
    assert harness.used() == [0, 0]


def test_nothing_is_kept_of_a_pod_that_was_looked_up_and_is_gone(harness: LedgerHarness) -> None:
    """A relist may be weeks away, and each activation looks a pod up."""
    for number in range(3):
        harness.ledger.update_fetched_pod(ledger_pod(f"p-{number}"))
        harness.ledger.remove_pod(f"p-{number}")
    assert not harness.ledger._fetched


def test_a_list_can_undo_even_a_binding(harness: LedgerHarness) -> None:
    """The API server was restored from a backup: what it says now is the truth."""
    harness.ledger.update_pod(ledger_pod(node="n", record=OURS))
    before = harness.ledger.begin_list()
    harness.ledger.update_listed_pod(ledger_pod())
    harness.ledger.end_list(before, {"p"})
    assert harness.used() == [0, 0]
    assert harness.ledger.get_pod("p") == ledger_pod()


def test_a_list_releases_pods_it_does_not_contain(harness: LedgerHarness) -> None:
    harness.ledger.update_pod(ledger_pod(node="n", record=OURS))
    harness.ledger.assume(ledger_pod("q"), "n", harness.place(ledger_pod("q"), 1))
    before = harness.ledger.begin_list()
    harness.ledger.assume(ledger_pod("r"), "n", harness.place(ledger_pod("r"), 1))
    harness.ledger.end_list(before, set())
    assert harness.used() == [0, 4]
    assert [each.pod.name for each in harness.ledger.places.list_reservations()] == ["r"]
