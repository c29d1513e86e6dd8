"""The nodes of the ledger: what their pods hold of each card, which problems that shows, and who is told of changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from policies.engine.change_log import REMOVED_NODES_KEPT
from tests.extender.ledger_harness import OURS, LedgerHarness
from tests.support.builders import UNIT_MIB, allocation_record, card_facts, ledger_pod, node_facts, pod_request
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.node import CardFacts, NodeFacts, Share
from vrampack.cards.records import Record, UnreadableRecord


@pytest.fixture
def harness() -> LedgerHarness:
    return LedgerHarness()


UNPLACED = {
    "without a record": (None, "record_missing", 4),
    "with a damaged record": (UnreadableRecord("vrampack.dev/allocation", "not JSON"), "record_unreadable", 4),
    "on a card that is not there": (Record("vrampack", (Share(4, "GPU-9", 9),)), "card_unknown", 4),
    "on a card that is not there, larger than asked": (Record("gpushare-v2", (Share(6, index=9),)), "card_unknown", 6),
}


@pytest.mark.parametrize(("record", "kind", "units"), UNPLACED.values(), ids=UNPLACED)
def test_a_bound_pod_on_unknown_cards_counts_on_every_card(
    harness: LedgerHarness, record: Record | UnreadableRecord | None, kind: str, units: int
) -> None:
    harness.ledger.update_pod(ledger_pod(node="n", record=record))
    assert harness.used() == [units, units]
    assert harness.kinds() == [kind]


def test_a_whole_card_pod_without_a_known_place_fills_every_card(harness: LedgerHarness) -> None:
    harness.ledger.update_pod(ledger_pod(ask=pod_request(4, whole=True), node="n"))
    assert harness.used() == [15, 15]


def test_the_agents_observation_places_a_pod_without_a_record(harness: LedgerHarness) -> None:
    harness.ledger.update_pod(ledger_pod(node="n"))
    harness.ledger.update_node(replace(node_facts("n", 15, 15), observed={"p": (Share(4, "GPU-1"),)}))
    assert harness.used() == [0, 4]
    assert harness.ledger.list_holds("n")[0].unplaced_reason == ""


def test_a_readable_record_beats_the_agents_observation() -> None:
    harness = LedgerHarness(replace(node_facts("n", 15, 15), observed={"p": (Share(4, "GPU-1"),)}))
    harness.ledger.update_pod(ledger_pod(node="n", record=OURS))
    assert harness.used() == [4, 0]


def test_free_units_never_go_below_zero_and_overcommitment_is_flagged(harness: LedgerHarness) -> None:
    harness.ledger.update_pod(ledger_pod("p", node="n", record=Record("vrampack", (Share(12, "GPU-0", 0),))))
    harness.ledger.update_pod(ledger_pod("q", node="n", record=Record("vrampack", (Share(6, "GPU-0", 0),))))
    card = harness.node().cards[0]
    assert (card.used_units, card.free_units, card.is_overcommitted) == (18, 0, True)
    assert harness.kinds() == ["overcommitted"]
    assert harness.recorder.problems[0].text == (
        "card 0 is promised beyond its memory and gets no new pods: its pods hold 18 of 15 units"
    )


UNITS_CHANGED = {
    # units_per_card {Tesla T4: 15}: 10 x 15 / 14 = 10.7 and 4 x 15 / 14 = 4.3
    "one unit more on a full card": (15109, 14, (10, 4), 15, 11 + 5),
    "one unit more on a card with room": (15109, 14, (10,), 15, 11),
    # a unit of 256 MiB instead of 1024: 12 x 63 / 15 = 50.4
    "a smaller unit": (16130, 15, (12,), 63, 51),
    # back again: 48 x 15 / 63 = 11.4
    "a larger unit": (16130, 63, (48,), 15, 12),
}


@pytest.mark.parametrize(("memory_mib", "before", "pods", "after", "used"), UNITS_CHANGED.values(), ids=UNITS_CHANGED)
@pytest.mark.parametrize("is_bound", [True, False], ids=["bound", "reserved"])
def test_pods_keep_their_memory_when_their_card_is_counted_in_other_units(
    memory_mib: int, before: int, pods: tuple[int, ...], after: int, used: int, *, is_bound: bool
) -> None:
    facts = [
        NodeFacts("n", (CardFacts(0, units, memory_mib, "GPU-0"),), unit_mib=UNIT_MIB) for units in (before, after)
    ]
    harness = LedgerHarness(facts[0])
    for at, units in enumerate(pods):
        pod = ledger_pod(f"p{at}", units=units)
        if is_bound:
            record = allocation_record(harness.node(), harness.node().cards, pod_request(units))
            harness.ledger.update_pod(replace(pod, node_name="n", record=record))
        else:
            harness.ledger.assume(pod, "n", harness.place(pod, 0))
    harness.ledger.update_node(facts[1])
    assert harness.used() == [used]
    free = max(0, after - used)
    assert isinstance(find_fitting_cards(harness.node(), pod_request(free + 1).card_request), Unfit)
    assert not free or find_fitting_cards(harness.node(), pod_request(free).card_request) == harness.node().cards
    assert harness.kinds() == (["overcommitted"] if used > after else [])


def test_a_whole_card_stays_whole_when_it_is_counted_in_other_units() -> None:
    harness = LedgerHarness(node_facts("n", 15))
    ask = pod_request(15, whole=True)
    record = allocation_record(harness.node(), harness.node().cards, ask)
    harness.ledger.update_pod(ledger_pod(ask=ask, node="n", record=record))
    harness.ledger.update_node(node_facts("n", 63))
    assert harness.used() == [63]


def test_a_pod_on_a_missing_card_counts_on_every_card_in_the_units_of_each() -> None:
    """12 x 63 / 15 = 50.4 on the card that could be the same one, and never less than its record says."""
    harness = LedgerHarness(node_facts("n", 63, 11))
    harness.ledger.update_pod(ledger_pod(node="n", record=Record("vrampack", (Share(12, "GPU-9", 9, card_units=15),))))
    assert harness.used() == [51, 12]


def test_a_problem_is_reported_once_and_again_after_it_went_away(harness: LedgerHarness) -> None:
    harness.ledger.update_pod(ledger_pod(node="n"))
    harness.ledger.update_pod(ledger_pod("q", node="n", record=OURS))
    assert harness.kinds() == ["record_missing"]
    harness.ledger.remove_pod("p")
    harness.ledger.update_pod(ledger_pod(node="n"))
    assert harness.kinds() == ["record_missing", "record_missing"]


def test_records_that_disagree_are_reported(harness: LedgerHarness) -> None:
    harness.ledger.update_pod(ledger_pod(node="n", record=replace(OURS, disagreement="other cards")))
    assert harness.used() == [4, 0]
    assert harness.kinds() == ["records_disagree"]


def test_pods_bound_before_their_node_is_seen_count_when_it_comes(harness: LedgerHarness) -> None:
    harness.ledger.update_pod(ledger_pod(node="late", record=OURS))
    harness.ledger.update_node(node_facts("late", 15))
    assert harness.used("late") == [4]


def test_pods_of_a_deleted_node_count_again_if_it_comes_back(harness: LedgerHarness) -> None:
    harness.ledger.update_pod(ledger_pod(node="n", record=OURS))
    harness.ledger.remove_node("n")
    assert harness.ledger.get_node("n") is None
    harness.ledger.update_node(node_facts("n", 15, 15))
    assert harness.used() == [4, 0]


def test_a_legacy_node_places_records_by_index() -> None:
    """It has no uuids: a record with one from the node's time under an agent is still right about the index."""
    harness = LedgerHarness(node_facts("n", 15, 15, legacy=True))
    harness.ledger.update_pod(ledger_pod(node="n", record=Record("vrampack", (Share(4, "GPU-of-an-agent", 1),))))
    harness.ledger.update_pod(ledger_pod("q", node="n", record=Record("gpushare-v1", (Share(3, index=0),))))
    assert harness.used() == [3, 4]


def test_an_agent_node_places_records_by_uuid_even_if_the_index_differs() -> None:
    """Indices change over reboots, uuids do not."""
    harness = LedgerHarness(NodeFacts("n", card_facts(15, 24, uuids=("GPU-b", "GPU-a")), unit_mib=UNIT_MIB))
    harness.ledger.update_pod(ledger_pod(node="n", record=Record("vrampack", (Share(4, "GPU-a", 0),))))
    assert harness.used() == [0, 4]


def test_mixed_cards_are_counted_card_by_card() -> None:
    harness = LedgerHarness(node_facts("n", 15, 80))
    record = Record("vrampack", (Share(15, "GPU-0", 0), Share(15, "GPU-1", 1)))
    harness.ledger.update_pod(ledger_pod(ask=pod_request(30, count=2), node="n", record=record))
    assert harness.used() == [15, 15]
    assert (harness.node().largest_free_units, harness.node().free_units, harness.node().total_units) == (65, 65, 95)


def test_unusable_cards_give_no_room() -> None:
    cards = card_facts(15, 15, 15)
    facts = NodeFacts("n", (replace(cards[0], healthy=False), *cards[1:]), UNIT_MIB, cordoned=frozenset({"GPU-1"}))
    harness = LedgerHarness(facts)
    assert (harness.node().largest_free_units, harness.node().free_units, harness.node().total_units) == (15, 15, 45)


def test_every_change_raises_the_generation_and_names_its_node(harness: LedgerHarness) -> None:
    harness.ledger.update_node(node_facts("m", 15))
    untouched = harness.node("m")
    changes: list[Callable[[], object]] = [
        lambda: harness.ledger.assume(ledger_pod(), "n", harness.place(ledger_pod(), 0)),
        lambda: harness.ledger.update_pod(ledger_pod(node="n", record=OURS)),
        lambda: harness.ledger.remove_pod("p"),
        lambda: harness.ledger.update_node(node_facts("n", 15, 24)),
    ]
    for change in changes:
        before, was = harness.ledger.generation, harness.node()
        change()
        assert harness.ledger.generation > before
        assert harness.ledger.list_nodes_changed_since(before) == ["n"]
        assert harness.node() is not was
    assert harness.node("m") is untouched


def test_an_update_without_a_change_keeps_the_generation(harness: LedgerHarness) -> None:
    harness.ledger.update_pod(ledger_pod(node="n", record=OURS))
    before = harness.ledger.generation
    harness.ledger.update_pod(ledger_pod(node="n", record=OURS))
    harness.ledger.update_node(node_facts("n", 15, 15))
    harness.ledger.update_pod(ledger_pod("unbound"))
    assert harness.ledger.generation == before


def test_a_pods_own_reservation_counts_as_free_for_it(harness: LedgerHarness) -> None:
    """After a bind without an answer, the only room left may be its own reservation."""
    harness.ledger.assume(ledger_pod(units=15), "n", harness.place(ledger_pod(units=15), 0))
    harness.ledger.assume(ledger_pod("q", units=15), "n", harness.place(ledger_pod("q", units=15), 1))
    mine, others = harness.ledger.get_node_for_pod("n", "p"), harness.ledger.get_node_for_pod("n", "r")
    assert mine is not None
    assert others is not None
    assert [card.free_units for card in mine.cards] == [15, 0]
    assert mine != harness.node()
    assert [card.free_units for card in others.cards] == [0, 0]


def test_a_node_with_another_unit_keeps_its_count_and_reports_the_mismatch() -> None:
    harness = LedgerHarness(replace(node_facts("n", 15), unit_mib=256))
    harness.ledger.update_pod(ledger_pod(node="n", record=OURS))
    assert harness.used() == [4]
    assert harness.node().problem.startswith("its unit is 256 MiB, the cluster's is 1024 MiB")


def test_units_of_a_bound_pod_are_free_for_no_other_pod(harness: LedgerHarness) -> None:
    """A call may name any uid."""
    harness.ledger.update_pod(ledger_pod(units=15, node="n", record=Record("vrampack", (Share(15, "GPU-0", 0),))))
    assert harness.ledger.get_node_for_pod("n", "p") == harness.node()


def test_changed_nodes_since_a_generation_are_listed(harness: LedgerHarness) -> None:
    ledger = harness.ledger
    for name in ("a", "b", "c"):
        ledger.update_node(node_facts(name))
    before = ledger.generation
    assert ledger.list_nodes_changed_since(before) == []
    ledger.update_pod(ledger_pod("p", node="b"))
    ledger.remove_node("a")
    ledger.update_node(node_facts("d"))
    assert sorted(ledger.list_nodes_changed_since(before) or ()) == ["a", "b", "d"]
    assert sorted(ledger.list_nodes_changed_since(0) or ()) == ["a", "b", "c", "d", "n"]


def test_removed_nodes_are_eventually_forgotten(harness: LedgerHarness) -> None:
    """A caller whose last look is so old that a removal may be missing has to look at all nodes."""
    ledger = harness.ledger
    ledger.update_node(node_facts("kept"))
    before = ledger.generation
    for number in range(REMOVED_NODES_KEPT + 10):
        ledger.update_node(node_facts(f"n{number}"))
        ledger.update_pod(ledger_pod(f"on-{number}", node=f"n{number}"))
        ledger.remove_pod(f"on-{number}")
        ledger.remove_node(f"n{number}")
    assert ledger.list_nodes_changed_since(before) is None
    assert len(ledger._changes.nodes._changed) <= REMOVED_NODES_KEPT + 5
    assert len(ledger._pods._bound) + len(ledger.nodes._reported_problems._reported) <= 5
    now = ledger.generation
    ledger.update_node(node_facts("kept", 16))
    assert ledger.list_nodes_changed_since(now) == ["kept"]
