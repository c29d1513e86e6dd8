"""What pods hold that the reader may not list: sums, never a name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.support.builders import snapshot_node
from vrampack.cli.ui.held_elsewhere import UnitRange, compute_free_range, compute_held_elsewhere
from vrampack.cli.ui.node_totals import NodeTotalsError, parse_node_totals

# used, held in all (None: not known), on the node, on each card; cards of 16
CASES = {
    # free 10 and 12: others may hold nothing, or all of it
    "nothing is known": ((6, 4), None, (0, 22), [(0, 10), (0, 12)]),
    # 15 - 10 = 5 units of others, on either card
    "either card": ((6, 4), 15, (5, 5), [(0, 5), (0, 5)]),
    # 30 - 10 = 20: the other card has 12 and 10 free, so at least 8 and 10 are here
    "more than one card takes": ((6, 4), 30, (20, 20), [(8, 10), (10, 12)]),
    "all of it": ((6, 4), 32, (22, 22), [(10, 10), (12, 12)]),
    "a full card has none": ((16, 0), 20, (4, 4), [(0, 0), (4, 4)]),
    # the two were read at different times
    "fewer than are seen": ((6, 4), 8, (0, 0), [(0, 0), (0, 0)]),
    "more than the cards have": ((6, 4), 40, (30, 30), [(10, 10), (12, 12)]),
}


@pytest.mark.parametrize(("used", "held", "on_node", "on_cards"), CASES.values(), ids=CASES)
def test_memory_held_elsewhere_is_computed_per_node_and_card(
    used: tuple[int, ...], held: int | None, on_node: tuple[int, int], on_cards: list[tuple[int, int]]
) -> None:
    found = compute_held_elsewhere(snapshot_node(used=used), is_complete=False, held_units=held)
    assert found.on_node == UnitRange(*on_node)
    assert [found.get_card_range(index) for index in (0, 1)] == [UnitRange(*each) for each in on_cards]


def test_a_user_who_may_list_all_pods_sees_nothing_held_elsewhere() -> None:
    found = compute_held_elsewhere(snapshot_node(used=(6, 4)), is_complete=True, held_units=30)
    assert (found.on_node, found.get_card_range(0)) == (UnitRange(), UnitRange())


@settings(deadline=None)
@given(some.lists(some.tuples(some.integers(0, 8), some.integers(0, 8)), min_size=1, max_size=5), some.booleans())
def test_memory_held_by_others_is_always_within_the_range(cards: list[tuple[int, int]], is_known: bool) -> None:  # noqa: FBT001 - hypothesis calls it
    """Of each card of 16: what the reader's pods hold, and what others do."""
    node = snapshot_node(units=[16] * len(cards), used=[seen for seen, _ in cards])
    held = sum(seen + others for seen, others in cards) if is_known else None
    found = compute_held_elsewhere(node, is_complete=False, held_units=held)
    assert found.on_node.least <= sum(others for _, others in cards) <= found.on_node.most
    for card, (seen, others) in zip(node.cards, cards, strict=True):
        span = found.get_card_range(card.index)
        assert span.least <= others <= span.most
        free = compute_free_range(card, span)
        assert free.least <= 16 - seen - others <= free.most


PAGE = """\
# HELP vrampack_node_memory_allocated_bytes GPU memory held by pods.
# TYPE vrampack_node_memory_allocated_bytes gauge
vrampack_node_memory_allocated_bytes{node="gpu-1"} 1.6106127360e+10
vrampack_node_memory_allocated_bytes{node="gpu-2"} 0
vrampack_node_memory_capacity_bytes{node="gpu-1"} 3.2e+10
"""


def test_totals_are_read_from_the_extenders_metrics() -> None:
    assert parse_node_totals(PAGE) == {"gpu-1": 15 * 2**30, "gpu-2": 0}


@pytest.mark.parametrize("text", ["", "<html>", "vrampack_node_memory_allocated_bytes{node=", "up 1\n"])
def test_text_that_is_no_metrics_page_is_refused(text: str) -> None:
    with pytest.raises(NodeTotalsError):
        parse_node_totals(text)
