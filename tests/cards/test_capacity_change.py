"""What counts as gained room: everything that can turn a rejection into a fit, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders import snapshot_node
from vrampack.cards.capacity_change import has_changed_cards, has_gained_capacity
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.node import CardInstances, Node
from vrampack.cards.request import REQUEST_WORDS, CardRequest

FULL = snapshot_node(units=(16, 16), used=(16, 16))
BROKEN = replace(snapshot_node(), problem="its unit is another")


def a_ruled_node(
    used: int = 0, *, tenants: Collection[bytes] = (), free_pods: int | None = None, reserve: int | None = None
) -> Node:
    """One card of 16 units, with what rules ask of it."""
    node = snapshot_node(units=(16,), used=(used,))
    (card,) = node.cards
    return replace(node, cards=(replace(card, tenants=frozenset(tenants), free_pods=free_pods, reserve=reserve),))


def a_counted_node(taken: int | None, *, are_per_container: bool = False) -> Node:
    """One card, of whose 25 instances so many are taken; None: it has any number."""
    room = None if taken is None else CardInstances("GPU-0", 25, taken, are_per_container=are_per_container)
    return snapshot_node(units=(16,), instances=(room,))


CASES = {
    "a new node": (None, snapshot_node(used=(15, 16)), True),
    "a new node that is full": (None, FULL, False),
    "nothing changed": (snapshot_node(used=(4, 0)), snapshot_node(used=(4, 0)), False),
    "a pod went": (FULL, snapshot_node(used=(12, 16)), True),
    "a pod came": (snapshot_node(used=(4, 4)), snapshot_node(used=(8, 4)), False),
    # 4 units move from card 0 to card 1: a pod that wants all of card 0 fits now
    "a pod moved": (snapshot_node(used=(4, 0)), snapshot_node(used=(0, 4)), True),
    "a card healed": (snapshot_node(unhealthy=[1]), snapshot_node(), True),
    "a full card healed": (snapshot_node(used=(0, 16), unhealthy=[1]), snapshot_node(used=(0, 16)), False),
    "a card was uncordoned": (snapshot_node(cordoned=[0]), snapshot_node(), True),
    "a card was cordoned": (snapshot_node(), snapshot_node(cordoned=[0]), False),
    "freed on a sick card": (snapshot_node(used=(8, 0), unhealthy=[0]), snapshot_node(unhealthy=[0]), False),
    "one card more": (snapshot_node(units=(16,)), snapshot_node(units=(16, 16)), True),
    "one card less": (snapshot_node(units=(16, 16)), snapshot_node(units=(16,)), False),
    "a card of another model": (
        snapshot_node(units=(16,), models=["A"]),
        snapshot_node(units=(16,), models=["B"]),
        True,
    ),
    "containers get cards in another way": (snapshot_node(), snapshot_node(injection="cdi"), True),
    "the same on a full node": (FULL, snapshot_node(used=(16, 16), injection="cdi"), False),
    "only wired containers get cards now": (snapshot_node(injection="cdi"), snapshot_node(), False),
    "the injection is known now": (snapshot_node(injection=None), snapshot_node(), True),
    "a card is reserved no more": (a_ruled_node(reserve=0), a_ruled_node(), True),
    "the reserve of a full card ended": (a_ruled_node(16, reserve=0), a_ruled_node(16), False),
    "the last pod of a tenant went": (a_ruled_node(4, tenants={b"a", b"b"}), a_ruled_node(4, tenants={b"a"}), True),
    "a tenant came": (a_ruled_node(tenants={b"a"}), a_ruled_node(4, tenants={b"a", b"b"}), False),
    "a pod more is let in": (a_ruled_node(4, free_pods=0), a_ruled_node(4, free_pods=1), True),
    "and any number": (a_ruled_node(4, free_pods=0), a_ruled_node(4), True),
    "a pod less": (a_ruled_node(4, free_pods=1), a_ruled_node(4, free_pods=0), False),
    "a pod left an instance": (a_counted_node(25), a_counted_node(24), True),
    "a pod took an instance": (a_counted_node(24), a_counted_node(25), False),
    "instances are not counted any more": (a_counted_node(25), a_counted_node(None), True),
    "instances are counted now": (a_counted_node(None), a_counted_node(0), False),
    "containers take none any more": (a_counted_node(24, are_per_container=True), a_counted_node(24), True),
    "the agent understands more": (snapshot_node(serves=frozenset({"memory"})), snapshot_node(), True),
    "it understands less": (snapshot_node(), snapshot_node(serves=frozenset({"memory"})), False),
    "a problem is over": (BROKEN, snapshot_node(), True),
    "a problem came up": (snapshot_node(used=(4, 4)), BROKEN, False),
}


@pytest.mark.parametrize(("before", "after", "want"), CASES.values(), ids=CASES)
def test_capacity_gains_are_recognized(before: Node | None, after: Node, *, want: bool) -> None:
    assert has_gained_capacity(before, after) is want


def a_node_with_compute(node: Node, cards: Sequence[tuple[int, int]]) -> Node:
    """Each card with so much compute, and of that so much taken."""
    return replace(
        node,
        cards=tuple(
            replace(card, offered=(("compute", most),) if most else (), taken=(("compute", taken),) if taken else ())
            for card, (most, taken) in zip(node.cards, cards, strict=True)
        ),
    )


PLAIN_NODES = st.builds(
    snapshot_node,
    units=st.just((8, 8, 4)),
    used=st.tuples(*[st.integers(0, 9)] * 3),
    unhealthy=st.sets(st.integers(0, 2)),
    models=st.tuples(*[st.sampled_from("AB")] * 3),
    injection=st.sampled_from(["exact", "cdi", None]),
    legacy=st.booleans(),
    serves=st.sampled_from([REQUEST_WORDS, REQUEST_WORDS, frozenset({"memory"})]),
    instances=st.lists(
        st.none()
        | st.builds(
            CardInstances, st.just("g"), st.just(4), st.sampled_from([0, 2, 4]), are_per_container=st.booleans()
        ),
        max_size=3,
    ),
)
NODES = st.builds(
    a_node_with_compute,
    PLAIN_NODES,
    st.just([(0, 0)] * 3) | st.tuples(*[st.tuples(st.just(4), st.integers(0, 4)) | st.just((0, 0))] * 3),
)
REQUESTS = st.builds(
    CardRequest,
    units=st.integers(1, 9),
    count=st.integers(1, 3),
    whole=st.booleans(),
    models=st.sampled_from([None, frozenset({"A"}), frozenset({"A", "B"})]),
    has_references=st.booleans(),
    instances=st.sampled_from([1, 3]),
    amounts=st.sampled_from([(), (("compute", 3),)]),
)


@settings(deadline=None)
@given(before=NODES, after=NODES, request=REQUESTS)
def test_no_request_begins_to_fit_where_no_room_was_gained(before: Node, after: Node, request: CardRequest) -> None:
    """A pod is never activated for room that is not signalled."""
    fitted_before = not isinstance(find_fitting_cards(before, request), Unfit)
    fits_after = not isinstance(find_fitting_cards(after, request), Unfit)
    assert has_gained_capacity(before, after) or fitted_before or not fits_after


@settings(deadline=None)
@given(before=NODES, after=NODES, request=REQUESTS)
def test_the_kind_of_a_reason_is_stable_while_the_cards_are_unchanged(
    before: Node, after: Node, request: CardRequest
) -> None:
    """A cached rejection states for each node whether an eviction could help."""
    kinds = [
        None if not isinstance(fitting, Unfit) else fitting.reason.is_unresolvable
        for fitting in (find_fitting_cards(before, request), find_fitting_cards(after, request))
    ]
    assert has_changed_cards(before, after) or None in kinds or kinds[0] == kinds[1]
