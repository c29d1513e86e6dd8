"""Small nodes and requests in which everything that decides a fit occurs often, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.builders import UNIT_MIB
from vrampack.cards.node import Card, InjectionMode, Node, NodeFacts, build_node
from vrampack.cards.request import CardRequest

MODELS = ("A", "B", "C")
MODEL_WISHES = (None, None, frozenset({"A"}), frozenset({"A", "B"}), frozenset({"D"}), frozenset({"C", "D"}))
UUID_WISHES = (None, None, frozenset({"GPU-0"}), frozenset({"GPU-0", "GPU-1", "GPU-2"}), frozenset({"GPU-9"}))

INJECTIONS: tuple[InjectionMode | None, ...] = ("exact", "exact", "exact", "cdi", None)


@st.composite
def node_strategy(draw: st.DrawFn, *, name: str = "n") -> Node:
    """Up to five mixed cards, some full or over, some sick or cordoned; all ways in which containers get cards; rarely a node with a problem."""
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
        for index, units in enumerate(draw(st.lists(st.integers(0, 8), max_size=5)))
    )
    problem = "its annotation is damaged" if draw(st.integers(0, 14)) == 0 else ""
    injection: InjectionMode | None = draw(st.sampled_from(INJECTIONS))
    legacy = draw(st.integers(0, 4)) == 0
    facts = NodeFacts(name, unit_mib=UNIT_MIB, problem=problem, injection=injection, legacy=legacy)
    return build_node(facts, cards, unit_mib=UNIT_MIB)


@st.composite
def request_strategy(draw: st.DrawFn) -> CardRequest:
    is_valid = draw(st.integers(0, 14)) > 0
    return CardRequest(
        units=draw(st.integers(1, 12)),
        count=draw(st.integers(1, 7)) if draw(st.booleans()) else 1,
        whole=draw(st.booleans()),
        models=draw(st.sampled_from(MODEL_WISHES)) if is_valid else None,
        uuids=draw(st.sampled_from(UUID_WISHES)) if is_valid else None,
        is_valid=is_valid,
        has_references=draw(st.integers(0, 4)) > 0,
    )
