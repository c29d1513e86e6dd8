"""Small nodes and requests in which everything that decides a fit occurs often, for hypothesis."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from tests.support.builders import UNIT_MIB
from vrampack.cards.amounts import Amounts
from vrampack.cards.node import Card, CardInstances, InjectionMode, Node, NodeFacts, build_node
from vrampack.cards.payment import compute_payment
from vrampack.cards.request import REQUEST_WORDS, CardRequest, RequestRules

MODELS = ("A", "B", "C")
MODEL_WISHES = (None, None, frozenset({"A"}), frozenset({"A", "B"}), frozenset({"D"}), frozenset({"C", "D"}))
UUID_WISHES = (None, None, frozenset({"GPU-0"}), frozenset({"GPU-0", "GPU-1", "GPU-2"}), frozenset({"GPU-9"}))

TENANTS = (b"a", b"b", b"")
RULES = (
    None,
    None,
    RequestRules(),
    RequestRules(tenant=b"a"),
    RequestRules(tenant=b"c", reserves=frozenset({0})),
    RequestRules(tenant=b"", models=frozenset({"A", "D"})),
    RequestRules(reserves=frozenset({0, 1}), models=frozenset({"B"})),
)
"""Of requests; on the cards are two tenants, a pod that shares with no other, and three reserves."""

AMOUNTS: tuple[Amounts, ...] = (
    (),
    (),
    (),
    (),
    (("compute", 1),),
    (("compute", 40),),
    (("compute", 101),),
    (("compute", 10), ("links", 3)),
    (("unknown", 1),),
)
"""Of requests; a card may offer some of these axes."""

INJECTIONS: tuple[InjectionMode | None, ...] = ("exact", "exact", "exact", "cdi", None)


@st.composite
def node_strategy(draw: st.DrawFn, *, name: str = "n") -> Node:
    """Up to five mixed cards, some full or over, some sick or cordoned; all ways in which containers get cards; agents of all ages.

    Rarely a node with a problem.
    """
    cards = tuple(
        Card(
            index=index,
            units=units,
            memory_mib=units * UNIT_MIB,
            uuid=f"GPU-{index}",
            model=draw(st.sampled_from(MODELS)),
            healthy=draw(st.integers(0, 4)) > 0,
            cordoned=draw(st.integers(0, 4)) == 0,
            used_units=draw(st.integers(0, units + 1)),
        )
        for index, units in enumerate(
            draw(st.lists(st.sampled_from((0, 1, 4, 6, 8, 8)), min_size=draw(st.sampled_from((0, 2, 4))), max_size=5))
        )
    )
    if draw(st.booleans()):
        cards = tuple(_rule_card(draw, card) for card in cards)
    if draw(st.integers(0, 2)) == 0:
        cards = tuple(_count_instances(draw, card) for card in cards)
    if draw(st.integers(0, 2)) == 0:
        cards = tuple(_offer_more(draw, card) for card in cards)
    problem = "its annotation is damaged" if draw(st.integers(0, 14)) == 0 else ""
    injection: InjectionMode | None = draw(st.sampled_from(INJECTIONS))
    legacy = draw(st.integers(0, 4)) == 0
    serves = (
        frozenset(draw(st.sets(st.sampled_from(sorted(REQUEST_WORDS)))))
        if draw(st.integers(0, 4)) == 0
        else REQUEST_WORDS
    )
    facts = NodeFacts(name, unit_mib=UNIT_MIB, problem=problem, injection=injection, serves=serves, legacy=legacy)
    return build_node(facts, cards, unit_mib=UNIT_MIB)


def _count_instances(draw: st.DrawFn, card: Card) -> Card:
    """With what a back end has of it: none, some, or enough for any request."""
    used = draw(st.sampled_from((0, 1, 3, 4)))
    room = CardInstances(card.uuid, draw(st.sampled_from((3, 4, 8))), used, are_per_container=draw(st.booleans()))
    return replace(card, instances=draw(st.sampled_from((room, room, None))))


def _offer_more(draw: st.DrawFn, card: Card) -> Card:
    """With other axes than memory, of which something is taken where pods are."""
    offered = draw(st.sampled_from(((), (("compute", 100),), (("compute", 100), ("links", 4)))))
    taken = tuple((axis, draw(st.integers(1, most))) for axis, most in offered) if card.used_units else ()
    return replace(card, offered=offered, taken=taken)


def _rule_card(draw: st.DrawFn, card: Card) -> Card:
    """With what rules ask of it. Pods are on a card of which something is used."""
    most = draw(st.sampled_from((None, 1, 3)))
    tenants = draw(st.frozensets(st.sampled_from(TENANTS), max_size=2)) if card.used_units else frozenset()
    free_pods = most if most is None or not card.used_units else draw(st.integers(0, most - 1))
    return replace(card, free_pods=free_pods, tenants=tenants, reserve=draw(st.sampled_from((None, None, 0, 1, 2))))


@st.composite
def request_strategy(draw: st.DrawFn, *, under_rules: bool = True) -> CardRequest:
    """Requests, some under rules unless the cluster has none; then some of those for whole cards are paid for."""
    is_valid = draw(st.integers(0, 14)) > 0
    units, count = draw(st.one_of(st.integers(1, 2), st.integers(1, 12))), 1
    if draw(st.integers(0, 3)) == 0:
        count = draw(st.integers(1, 7))
    is_whole = draw(st.integers(0, 3)) == 0
    odd = draw(st.integers(0, count - 1)) if is_whole and is_valid else 0
    is_paid = under_rules and is_whole and is_valid and draw(st.booleans())
    return CardRequest(
        units=units,
        count=count,
        whole=is_whole,
        is_even=odd == 0,
        payment=compute_payment(units * count + odd, count) if is_paid else None,
        models=draw(st.sampled_from(MODEL_WISHES)) if is_valid else None,
        uuids=draw(st.sampled_from(UUID_WISHES)) if is_valid else None,
        is_valid=is_valid,
        has_references=draw(st.integers(0, 4)) > 0,
        rules=draw(st.sampled_from(RULES)) if under_rules else None,
        instances=draw(st.sampled_from((1, 1, 3, 4))),
        amounts=draw(st.sampled_from(AMOUNTS)) if is_valid else (),
    )
