"""A shape gives the same answers about a node as its cards, and an index follows nodes as if each were looked at again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from policies.adjusted_policy import adjust_policy
from policies.engine.cluster_shapes import ClusterShapes
from policies.engine.fit_index import MIN_CLASSES, FitIndexes
from policies.evaluate import evaluate_node
from policies.outlook import Outlook
from policies.policy import ScoredCards, build_view, find_bound_scores
from policies.registry import POLICIES
from tests.policies.known_forecast import FORECAST, FREE_ROOM
from tests.policies.tuned_policies import TUNED_POLICIES
from tests.support.builders import snapshot_node
from tests.support.strategies import node_strategy, request_strategy
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.host_room import HostResources
from vrampack.cards.node import Node
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import CardPayment, CardRequest
from vrampack.cards.shape import FitClasses, Shape, get_request_kind, open_card
from vrampack.cards.tuned_policy import TunedPolicy

CARDLESS = request_strategy().filter(lambda request: request.uuids is None)


@settings(deadline=None)
@given(node_strategy(), request_strategy())
def test_a_fit_class_gives_the_reason_that_the_cards_give(node: Node, request: CardRequest) -> None:
    """Sorted numbers against going through the cards; no node has the cards that a request names."""
    if request.uuids is not None:
        request = replace(request, uuids=frozenset({"GPU-elsewhere"}))
    fitting = find_fitting_cards(node, request)
    want = fitting.reason if isinstance(fitting, Unfit) else None
    fit_class = FitClasses(get_request_kind(request)).find_class(Shape(node))
    assert fit_class.find_obstacle(request.units) == want
    assert list(fit_class.numbers) == sorted(fit_class.numbers, reverse=True)


BUSY_AND_FREE = replace(
    (two := snapshot_node(units=(16, 16))),
    cards=(
        replace(two.cards[0], used_units=4, offered=(("compute", 100),), taken=(("compute", 70),)),
        replace(two.cards[1], offered=(("compute", 100),)),
    ),
)
"""The tighter card has memory enough, and too little compute for forty."""


@settings(deadline=None)
@given(node_strategy(), CARDLESS, TUNED_POLICIES, FREE_ROOM)
@example(BUSY_AND_FREE, CardRequest(4, amounts=(("compute", 40),)), TunedPolicy("binpack"), HostResources(0, 0))
def test_a_shapes_score_equals_the_nodes_and_is_within_its_bound(
    node: Node, request: CardRequest, tuned: TunedPolicy, room: HostResources
) -> None:
    outlook = Outlook(FORECAST, {"n": room}, HostResources(500, 1024), {(8, 3): 2, (5, 5): 1})
    evaluation, view = evaluate_node(node, request, tuned, outlook), build_view(Shape(node), request, room)
    assert isinstance(evaluation, ScoredCards) == (view is not None)
    if isinstance(evaluation, ScoredCards) and view is not None:
        policy = adjust_policy(POLICIES[tuned.name], tuned)
        (rating,) = policy.rate([view], request, outlook)
        assert (rating.score, sorted(rating.cards)) == (evaluation.score, sorted(map(open_card, evaluation.cards)))
        bound_scores = find_bound_scores(policy)
        if bound_scores is not None and request.count == 1 and not request.whole:
            assert next(bound_scores([view], request, outlook)) >= evaluation.score
        terms = policy.list_terms(view, evaluation.cards, request, outlook)
        assert sum(term.value for term in terms) == pytest.approx(evaluation.score, abs=1e-6)


@st.composite
def alike_nodes(draw: st.DrawFn) -> list[Node]:
    """Nodes of the same cards, of which more or less is held, and of which others have each of their models."""
    node = draw(node_strategy())
    models = [card.model for card in node.cards]
    held = [
        st.tuples(st.integers(0, card.units + 1), st.booleans(), st.sampled_from((0, 0, 40, 100)))
        for card in node.cards
    ]
    return [
        replace(
            node,
            cards=tuple(
                replace(
                    card,
                    used_units=used,
                    healthy=is_healthy,
                    model=model,
                    taken=(("compute", compute),) if compute else (),
                )
                for card, (used, is_healthy, compute), model in zip(
                    node.cards, each, draw(st.permutations(models)), strict=True
                )
            ),
        )
        for each in draw(st.lists(st.tuples(*held), min_size=1, max_size=4))
    ]


@settings(deadline=None)
@given(st.lists(alike_nodes(), max_size=3), CARDLESS, st.integers(0, 3))
def test_an_index_that_follows_equals_one_that_is_new(
    clusters: list[list[Node]], request: CardRequest, seen: int
) -> None:
    nodes = {f"n{at}": node for at, node in enumerate(node for alike in clusters for node in alike)}
    cluster = ClusterShapes()
    fits = FitIndexes(cluster)
    for name, node in nodes.items():
        cluster.put_node(f"n{int(name[1:]) % (seen + 1)}", node)  # some names twice
        fits.get_classes(request)
    for name, node in nodes.items():
        cluster.put_node(name, node)
    found = {name: each.find_obstacle(request.units) for name, each in fits.get_classes(request).items()}
    assert found == {name: find_obstacle(node, request) for name, node in nodes.items()}


def find_obstacle(node: Node, request: CardRequest) -> UnfitReason | None:
    fitting = find_fitting_cards(node, request)
    return fitting.reason if isinstance(fitting, Unfit) else None


@pytest.mark.parametrize("order", [("n1", "n2"), ("n2", "n1")])
def test_two_cards_of_a_model_are_found_beside_a_node_that_has_one(order: tuple[str, str]) -> None:
    """The nodes have cards of equal sizes, and of the same models: what differs is how many there are of each."""
    models = {"n1": "ABB", "n2": "AAB"}
    cluster = ClusterShapes()
    for name in order:
        cluster.put_node(name, snapshot_node(name, units=(16, 16, 16), models=models[name]))
    request = CardRequest(4, 2, models=frozenset("A"), has_references=True)
    classes = FitIndexes(cluster).get_classes(request)
    assert {name: each.find_obstacle(4) for name, each in classes.items()} == {"n1": UnfitReason.MODEL, "n2": None}


def test_which_cards_are_empty_decides_where_whole_cards_are_paid_for() -> None:
    """On nodes of equal cards, with one empty card each: 20 units pay for the small one only."""
    cluster = ClusterShapes()
    for name, used in {"n1": (0, 80), "n2": (16, 0)}.items():
        cluster.put_node(name, snapshot_node(name, units=(16, 80), used=used))
    request = CardRequest(20, whole=True, payment=CardPayment(16, 20))
    classes = FitIndexes(cluster).get_classes(request)
    assert {name: each.find_obstacle(20) for name, each in classes.items()} == {
        "n1": None,
        "n2": UnfitReason.NO_EMPTY_CARD,
    }


def test_nodes_that_differ_on_another_axis_than_memory_are_not_alike() -> None:
    (card,) = snapshot_node(units=(16,)).cards
    cards = {
        "roomy": replace(card, offered=(("compute", 100),)),
        "busy": replace(card, offered=(("compute", 100),), taken=(("compute", 90),)),
        "without": card,
    }
    cluster = ClusterShapes()
    for name, each in cards.items():
        cluster.put_node(name, replace(snapshot_node(name), cards=(each,)))
    classes = FitIndexes(cluster).get_classes(CardRequest(4, amounts=(("compute", 40),)))
    assert {name: each.find_obstacle(4) for name, each in classes.items()} == {
        "roomy": None,
        "busy": UnfitReason.NO_AMOUNT,
        "without": UnfitReason.NOT_OFFERED,
    }


def test_nodes_that_are_alike_share_a_shape_and_no_change_is_noticed() -> None:
    cluster = ClusterShapes()
    cluster.put_node("a", snapshot_node("a"))
    cluster.put_node("b", snapshot_node("b"))
    assert cluster.shapes["a"] is cluster.shapes["b"]
    first = cluster.changes.generation
    cluster.put_node("a", snapshot_node("a"))
    assert cluster.changes.list_nodes_changed_since(first) == []
    cluster.put_node("a", snapshot_node("a", used=(4, 0)))
    assert cluster.changes.list_nodes_changed_since(first) == ["a"]


def test_classes_of_earlier_states_do_not_pile_up() -> None:
    cluster = ClusterShapes()
    fits = FitIndexes(cluster)
    for used in range(1, 2000):
        cluster.put_node("n", snapshot_node("n", units=(2000,), used=(used,)))
        fits.get_classes(CardRequest(4))
    (index,) = fits.list_indexes(CardRequest(4), None)
    assert len(index._fit_classes) <= MIN_CLASSES + 4
