"""A place that was named and is not bound yet: other pods are led elsewhere, and none is refused because of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from extender.state.soft_reservations import SOFT_RESERVATION_SECONDS, SoftReservations
from policies.policy import ScoredCards
from policies.trial_placement import Placement
from tests.extender.scheduler_harness import SchedulerHarness
from tests.support.builders import ledger_pod, pod_request
from vrampack.cards.request import CardRequest


def list_reserved_nodes(desk: SchedulerHarness) -> dict[str, str]:
    """Who was promised which node."""
    return {each.uid: each.placement.node_name for each in desk.parts.soft_reservations.list_active()}


def test_the_next_pod_is_led_to_another_card() -> None:
    """One place of 15 units on each node: without the promise both would be sent to `a`, and one bind be refused."""
    desk = SchedulerHarness({"a": [15], "b": [15]})
    assert desk.filter_and_prioritize("first", 15) == "a"
    assert desk.filter_and_prioritize("second", 15) == "b"
    assert list_reserved_nodes(desk) == {"first": "a", "second": "b"}


def test_softly_reserved_units_count_as_held_when_ranking() -> None:
    """4 of 15 promised on `a`: for a pod of 8 it has 11 free, tighter than the 15 of `b`. For one of 12 it has none."""
    desk = SchedulerHarness({"a": [15], "b": [15]})
    assert desk.filter_and_prioritize("first", 4) == "a"
    assert desk.filter_and_prioritize("beside it", 8) == "a"
    assert desk.filter_and_prioritize("not beside it", 12) == "b"


def test_a_soft_reservation_rejects_no_pod() -> None:
    desk = SchedulerHarness({"a": [15]})
    assert desk.filter_and_prioritize("first", 15) == "a"
    assert desk.filter_and_prioritize("second", 15) == "a"
    assert list_reserved_nodes(desk) == {"first": "a", "second": "a"}


def test_eight_members_of_a_gang_get_eight_places() -> None:
    """All of them are filtered before the first one is bound."""
    desk = SchedulerHarness({"a": [15, 15], "b": [15, 15], "c": [15, 15], "d": [15, 15]}, decide="filter")
    sent = [desk.filter_names(f"member-{number}", 15) for number in range(8)]
    assert sorted(sent) == [["a"], ["a"], ["b"], ["b"], ["c"], ["c"], ["d"], ["d"]]
    cards = {(each.placement.node_name, each.placement.cards) for each in desk.parts.soft_reservations.list_active()}
    assert len(cards) == 8


def test_a_bind_uses_its_own_soft_reservation() -> None:
    """A tighter card became free meanwhile; the promised one still fits, and others may count on it staying so."""
    desk = SchedulerHarness({"a": [15, 8]})
    desk.add_bound_pod("on-1", "a", 8, card=1)
    assert desk.filter_and_prioritize("first", 4) == "a"
    desk.ledger.remove_pod("on-1")
    assert desk.choose_cards("first", "a") == [0]
    desk.parts.soft_reservations.release_pod("first")
    assert desk.choose_cards("first", "a") == [1]


def test_a_soft_reservation_that_no_longer_fits_is_ignored() -> None:
    desk = SchedulerHarness({"a": [15, 15]})
    assert desk.filter_and_prioritize("first", 15) == "a"
    desk.add_bound_pod("faster", "a", 1, card=0)
    assert desk.choose_cards("first", "a", 15) == [1]


def test_a_soft_reservation_on_another_node_is_ignored() -> None:
    """Promised card 0 of `a`; on `b`, where the scheduler's own scores lead it, card 1 is the tighter one."""
    desk = SchedulerHarness({"a": [8], "b": [15, 8]})
    assert desk.filter_and_prioritize("first", 4) == "a"
    assert desk.choose_cards("first", "b", 4) == [1]


def test_a_partly_taken_soft_reservation_is_ignored() -> None:
    """Two cards were promised and one of them is taken: the pod gets two all the same."""
    desk = SchedulerHarness({"a": [15, 15, 15]})
    asked = pod_request(8, count=2)
    desk.parts.soft_reservations.reserve_placement("first", asked.card_request, Placement("a", (0, 1)))
    desk.add_bound_pod("faster", "a", 15, card=1)
    judged = desk.parts.engine.evaluate_node("a", asked, "first")
    assert isinstance(judged, ScoredCards)
    assert [card.index for card in judged.cards] == [0, 2]


def test_bind_prefers_cards_without_soft_reservations_of_others() -> None:
    """Sent here by the scheduler's own scores: card 0 is promised to another pod, card 1 is as good."""
    desk = SchedulerHarness({"a": [15, 15]})
    assert desk.filter_and_prioritize("first", 15) == "a"
    assert desk.choose_cards("another", "a", 15) == [1]


ENDS: dict[str, Callable[[SchedulerHarness], object]] = {
    "2 seconds": lambda desk: setattr(desk, "seconds", desk.seconds + SOFT_RESERVATION_SECONDS),
    "its next filter": lambda desk: desk.filter_names("first", 15, names=["none"]),
    "it is bound": lambda desk: desk.add_bound_pod("first", "b", 15),
    "it is deleted": lambda desk: desk.ledger.remove_pod("first"),
    "it is leaving": lambda desk: desk.ledger.update_pod(ledger_pod("first", units=15, leaving=True)),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_soft_reservation_expires(end: Callable[[SchedulerHarness], object]) -> None:
    desk = SchedulerHarness({"a": [15], "b": [15]})
    desk.add_pending_pod("first", 15)
    assert desk.filter_and_prioritize("first", 15) == "a"
    end(desk)
    assert list_reserved_nodes(desk) == {}


def test_a_soft_reservation_of_a_pod_not_yet_in_the_watch_holds() -> None:
    """The scheduler's watch may be ahead of ours."""
    promises = SoftReservations(lambda: 0.0, lambda _: ())
    promises.reserve_placement("p", CardRequest(4), Placement("a", (0,)))
    assert promises.list_placements("p") == [Placement("a", (0,))]
    assert promises.list_reserved_cards("a", "p") == ()
    assert promises.list_reserved_cards("a", "q") == (((0,), CardRequest(4)),)


def test_filter_with_one_fitting_node_makes_a_soft_reservation() -> None:
    """The scheduler skips prioritize then."""
    desk = SchedulerHarness({"a": [15], "b": [4]})
    assert desk.filter_names("first", 15) == ["a"]
    assert list_reserved_nodes(desk) == {"first": "a"}


def test_soft_reservations_are_not_part_of_the_ledger() -> None:
    desk = SchedulerHarness({"a": [15]})
    before = (desk.ledger.generation, desk.ledger.capacity_generation, desk.ledger.list_nodes())
    desk.filter_and_prioritize("first", 15)
    assert (desk.ledger.generation, desk.ledger.capacity_generation, desk.ledger.list_nodes()) == before
