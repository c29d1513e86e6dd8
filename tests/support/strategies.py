"""Small nodes and requests in which everything that decides a fit occurs often, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.builders import UNIT_MIB
from vrampack.cards.node import Card, Node, NodeFacts, build_node
from vrampack.cards.request import CardRequest

MODELS = ("A", "B")


@st.composite
def node_strategy(draw: st.DrawFn, *, name: str = "n") -> Node:
    """Up to five mixed cards, some full or over, some sick or cordoned; rarely a node with a problem."""
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
    facts = NodeFacts(name, unit_mib=UNIT_MIB, problem=problem)
    return build_node(facts, cards, unit_mib=UNIT_MIB)


@st.composite
def request_strategy(draw: st.DrawFn) -> CardRequest:
    return CardRequest(
        units=draw(st.integers(1, 9)),
        count=draw(st.integers(1, 3)),
        whole=draw(st.booleans()),
        models=draw(st.sampled_from([(), (), ("A",), ("A", "B"), ("C",)])),
        uuids=draw(st.sampled_from([(), (), ("GPU-0",), ("GPU-0", "GPU-1", "GPU-2"), ("GPU-9",)])),
        problem="it cannot be" if draw(st.integers(0, 14)) == 0 else "",
    )
