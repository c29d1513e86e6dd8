"""Nodes are grouped for a new kind of request as they would be one by one."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.engine.node_summary_index import NodeSummaryIndex
from tests.support.builders import snapshot_node
from tests.support.strategies import node_strategy, request_strategy
from vrampack.cards.node import Node
from vrampack.cards.node_summary import find_equivalence_class, get_request_kind, summarize_node
from vrampack.cards.request import CardRequest


@st.composite
def alike_nodes(draw: st.DrawFn) -> list[Node]:
    """Nodes of the same cards, of which more or less is held."""
    node = draw(node_strategy())
    held = [st.tuples(st.integers(0, card.units + 1), st.booleans()) for card in node.cards]
    return [
        replace(
            node,
            cards=tuple(
                replace(card, used_units=used, healthy=is_healthy)
                for card, (used, is_healthy) in zip(node.cards, each, strict=True)
            ),
        )
        for each in draw(st.lists(st.tuples(*held), min_size=1, max_size=4))
    ]


@settings(deadline=None)
@given(st.lists(alike_nodes(), max_size=3), request_strategy())
def test_nodes_are_grouped_as_they_are_one_by_one(clusters: list[list[Node]], request: CardRequest) -> None:
    summaries = {
        f"n{number}": summarize_node(node) for number, node in enumerate(node for alike in clusters for node in alike)
    }
    index = NodeSummaryIndex()
    for name, summary in summaries.items():
        index.put_summary(name, summary)
    kind = get_request_kind(request)
    want: dict[object, set[str]] = {}
    for name, summary in summaries.items():
        obstacle = find_equivalence_class(summary, kind).find_obstacle(request)
        want.setdefault(obstacle, set()).add(name)
    found: dict[object, set[str]] = {}
    for obstacle, names in index.group_by_obstacle(request):
        found.setdefault(obstacle, set()).update(names)
    assert found == want


def test_a_summary_that_stays_is_no_change() -> None:
    index, summary = NodeSummaryIndex(), summarize_node(snapshot_node())
    index.put_summary("n", summary)
    first = index.changes.generation
    index.put_summary("n", summary)
    assert index.changes.list_changed_since(first) == []
    index.put_summary("n", summarize_node(snapshot_node()))
    assert index.changes.list_changed_since(first) == ["n"]
    copy = NodeSummaryIndex()
    copy.copy_from(index)
    assert copy.changes.list_changed_since(0) is None
