"""How many pods with one request a node has cards for: exactly where only memory counts, and never too few."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.trial_placement import hold_on_node
from tests.support.builders import snapshot_node
from tests.support.strategies import node_strategy, request_strategy
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.joint_places import count_places
from vrampack.cards.node import Node
from vrampack.cards.request import CardRequest

NODE = snapshot_node(units=(16, 16, 16), used=(0, 6, 12))

COUNTS: dict[str, tuple[Node, CardRequest, int]] = {
    # 16 / 5 = 3, 10 / 5 = 2, 4 / 5 = 0
    "one card": (NODE, CardRequest(5), 5),
    "one card, no more than wanted": (NODE, CardRequest(1), 9),
    # 4, 2 and 1 pods on each card make pairs of different cards: 4+2, or 2+1 of others
    "two cards": (NODE, CardRequest(4, count=2), 3),
    "three cards": (NODE, CardRequest(4, count=3), 1),
    "a whole card": (NODE, CardRequest(4, whole=True), 1),
    "more than any card has": (NODE, CardRequest(17), 0),
    "a card that is unhealthy": (snapshot_node(units=(16, 16), unhealthy=(0,)), CardRequest(8), 2),
}


@pytest.mark.parametrize(("node", "request_", "want"), COUNTS.values(), ids=COUNTS)
def test_places_by_memory(node: Node, request_: CardRequest, want: int) -> None:
    assert count_places(node, request_, 9) == want


@given(node=node_strategy(), request_=request_strategy(), seed=st.integers(0, 99))
@settings(deadline=None)
def test_no_order_places_more(node: Node, request_: CardRequest, seed: int) -> None:
    chance, placed, left = random.Random(seed), 0, node
    while placed < 9 and not isinstance(fitting := find_fitting_cards(left, request_), Unfit):
        taken = [card.index for card in chance.sample(fitting, request_.count)]
        left, placed = hold_on_node(left, [(taken, request_)]), placed + 1
    assert count_places(node, request_, 9) >= placed
