"""What counts as gained room: everything that can turn a no into a yes, and nothing that cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_node
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.node import Node
from vrampack.cards.request import CardRequest
from vrampack.cards.room import has_gained_capacity

FULL = a_node(units=(16, 16), used=(16, 16))
BROKEN = replace(a_node(), problem="its unit is another")

CASES = {
    "a new node": (None, a_node(used=(15, 16)), True),
    "a new node that is full": (None, FULL, False),
    "nothing changed": (a_node(used=(4, 0)), a_node(used=(4, 0)), False),
    "a pod went": (FULL, a_node(used=(12, 16)), True),
    "a pod came": (a_node(used=(4, 4)), a_node(used=(8, 4)), False),
    # 4 units move from card 0 to card 1: whoever wants all of card 0 fits now
    "a pod moved": (a_node(used=(4, 0)), a_node(used=(0, 4)), True),
    "a card healed": (a_node(unhealthy=[1]), a_node(), True),
    "a full card healed": (a_node(used=(0, 16), unhealthy=[1]), a_node(used=(0, 16)), False),
    "a card was uncordoned": (a_node(cordoned=[0]), a_node(), True),
    "a card was cordoned": (a_node(), a_node(cordoned=[0]), False),
    "freed on a sick card": (a_node(used=(8, 0), unhealthy=[0]), a_node(unhealthy=[0]), False),
    "one card more": (a_node(units=(16,)), a_node(units=(16, 16)), True),
    "one card less": (a_node(units=(16, 16)), a_node(units=(16,)), False),
    "a card of another model": (a_node(units=(16,), models=["A"]), a_node(units=(16,), models=["B"]), True),
    "a problem is over": (BROKEN, a_node(), True),
    "a problem came up": (a_node(used=(4, 4)), BROKEN, False),
}


@pytest.mark.parametrize(("before", "after", "want"), CASES.values(), ids=CASES)
def test_room_is_gained(before: Node | None, after: Node, *, want: bool) -> None:
    assert has_gained_capacity(before, after) is want


NODES = st.builds(
    a_node,
    units=st.just((8, 8, 4)),
    used=st.tuples(*[st.integers(0, 9)] * 3),
    unhealthy=st.sets(st.integers(0, 2)),
    models=st.tuples(*[st.sampled_from("AB")] * 3),
)
REQUESTS = st.builds(
    CardRequest,
    units=st.integers(1, 9),
    count=st.integers(1, 3),
    whole=st.booleans(),
    models=st.sampled_from([(), ("A",), ("A", "B")]),
)


@given(before=NODES, after=NODES, request=REQUESTS)
def test_no_request_begins_to_fit_where_no_room_was_gained(before: Node, after: Node, request: CardRequest) -> None:
    """What is never signalled is never kicked."""
    fitted_before = not isinstance(find_fitting_cards(before, request), Unfit)
    fits_after = not isinstance(find_fitting_cards(after, request), Unfit)
    assert has_gained_capacity(before, after) or fitted_before or not fits_after
