"""A summary gives the same answers about a node as its cards, and nodes are grouped by it as they would be one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.adjusted_policy import adjust_policy
from policies.engine.node_summary_index import NodeSummaryIndex
from policies.evaluate import evaluate_node
from policies.outlook import Outlook
from policies.policy import ScoredCards
from policies.registry import POLICIES
from tests.policies.known_forecast import FORECAST, FREE_ROOM
from tests.policies.tuned_policies import TUNED_POLICIES
from tests.support.builders import snapshot_node
from tests.support.strategies import node_strategy, request_strategy
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.host_room import HostResources
from vrampack.cards.node import Node
from vrampack.cards.node_summary import find_equivalence_class, get_request_kind, select_view, summarize_node
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import CardRequest
from vrampack.cards.tuned_policy import TunedPolicy

CARDLESS = request_strategy().filter(lambda request: request.uuids is None)


@settings(deadline=None)
@given(node_strategy(), CARDLESS)
def test_an_equivalence_class_gives_the_reason_that_the_cards_give(node: Node, request: CardRequest) -> None:
    """Sorted numbers against going through the cards."""
    fitting = find_fitting_cards(node, request)
    want = fitting.reason if isinstance(fitting, Unfit) else None
    assert find_equivalence_class(summarize_node(node), get_request_kind(request)).find_obstacle(request) == want


@settings(deadline=None)
@given(node_strategy(), CARDLESS, TUNED_POLICIES, FREE_ROOM)
def test_a_summary_score_equals_the_policys_own_and_is_within_its_bound(
    node: Node, request: CardRequest, tuned: TunedPolicy, room: HostResources
) -> None:
    outlook = Outlook(FORECAST, {"n": room}, HostResources(500, 1024), {(8, 3): 2, (5, 5): 1})
    evaluation = evaluate_node(node, request, tuned, outlook)
    if isinstance(evaluation, ScoredCards):
        summary = select_view(summarize_node(node), request)
        policy = adjust_policy(POLICIES[tuned.name], tuned)
        assert list(policy.score_nodes([("n", summary)], request, outlook)) == [("n", evaluation.score)]
        ((_, bound),) = policy.bound_scores([("n", summary)], request, outlook)
        assert bound >= evaluation.score
        terms = policy.list_terms(node, evaluation.cards, request, outlook)
        assert sum(term.value for term in terms) == pytest.approx(evaluation.score, abs=1e-6)


@st.composite
def alike_nodes(draw: st.DrawFn) -> list[Node]:
    """Nodes of the same cards, of which more or less is held, and of which others have each of their models."""
    node = draw(node_strategy())
    models = [card.model for card in node.cards]
    held = [st.tuples(st.integers(0, card.units + 1), st.booleans()) for card in node.cards]
    return [
        replace(
            node,
            cards=tuple(
                replace(card, used_units=used, healthy=is_healthy, model=model)
                for card, (used, is_healthy), model in zip(node.cards, each, draw(st.permutations(models)), strict=True)
            ),
        )
        for each in draw(st.lists(st.tuples(*held), min_size=1, max_size=4))
    ]


@settings(deadline=None)
@given(st.lists(alike_nodes(), max_size=3), request_strategy())
def test_incremental_grouping_equals_grouping_each_node(clusters: list[list[Node]], request: CardRequest) -> None:
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


@pytest.mark.parametrize("order", [("n1", "n2"), ("n2", "n1")])
def test_two_cards_of_a_model_are_found_beside_a_node_that_has_one(order: tuple[str, str]) -> None:
    """The nodes have cards of equal sizes, and of the same models: what differs is how many there are of each."""
    models = {"n1": "ABB", "n2": "AAB"}
    index = NodeSummaryIndex()
    for name in order:
        index.put_summary(name, summarize_node(snapshot_node(name, units=(16, 16, 16), models=models[name])))
    request = CardRequest(4, 2, models=frozenset("A"), has_references=True)
    found = {reason: set(names) for reason, names in index.group_by_obstacle(request)}
    assert found == {None: {"n2"}, UnfitReason.MODEL: {"n1"}}
    index.put_summary("n2", None)  # from the group that it is in
    assert [set(names) for _, names in index.group_by_obstacle(request)] == [{"n1"}]


def test_putting_the_same_summary_object_again_is_no_change() -> None:
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
