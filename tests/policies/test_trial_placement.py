"""Requests placed one by one: what was placed is taken when the next one comes, and all of them fit together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.policy_settings import PolicyName
from policies.evaluate import evaluate_node
from policies.policy import ScoredCards
from policies.trial_placement import Placement, TrialCluster
from tests.support.builders import snapshot_node
from tests.support.strategies import node_strategy, request_strategy
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.node import CardInstances, Node
from vrampack.cards.payment import compute_payment
from vrampack.cards.request import CardRequest
from vrampack.cards.tuned_policy import TunedPolicy


def place_request(
    trial: TrialCluster, request: CardRequest, names: Sequence[str] = ("n",)
) -> tuple[str, tuple[int, ...]] | None:
    """Take the best place; a plain version of what `extender.requeue.dry_run` does for thousands of nodes."""
    placements = [
        placement for name in names if (placement := trial.find_placement(name, request, TunedPolicy("binpack")))
    ]
    if not placements:
        return None
    placement = min(placements, key=lambda placement: placement.sort_key)
    trial.hold_placement(placement, request)
    return placement.node_name, placement.cards


def test_placed_units_are_unavailable_to_the_next_request() -> None:
    """Free 16-10=6 and 16: 5 go to the fuller card, the next 5 to the other one, which has 11 left: two more of 5."""
    trial = TrialCluster([snapshot_node(used=(10, 0))])
    assert [place_request(trial, CardRequest(5)) for _ in range(5)] == [("n", (0,)), *[("n", (1,))] * 3, None]


def test_a_whole_card_is_taken_whole() -> None:
    trial = TrialCluster([snapshot_node()])
    assert place_request(trial, CardRequest(4, whole=True)) == ("n", (0,))
    assert place_request(trial, CardRequest(16)) == ("n", (1,))
    assert place_request(trial, CardRequest(1)) is None


def test_a_whole_card_may_be_a_little_smaller_than_what_is_paid() -> None:
    trial = TrialCluster([snapshot_node(units=(15, 16), used=(0, 1))])
    assert place_request(trial, CardRequest(16, whole=True, payment=compute_payment(16, 1))) == ("n", (0,))


def test_several_cards_are_taken_together() -> None:
    trial = TrialCluster([snapshot_node(used=(0, 8))])
    assert place_request(trial, CardRequest(8, count=2)) == ("n", (0, 1))
    assert place_request(trial, CardRequest(8, count=2)) is None
    assert place_request(trial, CardRequest(8)) == ("n", (0,))


def test_placed_pods_take_more_than_memory() -> None:
    node = snapshot_node(units=(16,))
    trial = TrialCluster([replace(node, cards=(replace(node.cards[0], offered=(("compute", 100),)),))])
    assert place_request(trial, CardRequest(4, amounts=(("compute", 60),))) == ("n", (0,))
    assert place_request(trial, CardRequest(4, amounts=(("compute", 41),))) is None
    assert place_request(trial, CardRequest(4, amounts=(("compute", 40),))) == ("n", (0,))


def test_placed_pods_take_instances_of_their_gpu() -> None:
    """Of 5 on two MIG instances of one GPU, the first request takes 3; only one that takes no more than 2 fits beside it."""
    room = CardInstances("GPU-p", 5, are_per_container=True)
    trial = TrialCluster([snapshot_node(instances=(room, room))])
    assert place_request(trial, CardRequest(4, instances=3)) == ("n", (0,))
    assert place_request(trial, CardRequest(4, instances=3)) is None
    assert place_request(trial, CardRequest(4, instances=2)) == ("n", (0,))
    assert place_request(trial, CardRequest(4)) is None


def test_only_named_nodes_are_looked_at() -> None:
    trial = TrialCluster([snapshot_node("a"), snapshot_node("b")])
    assert place_request(trial, CardRequest(4), ["b"]) == ("b", (0,))
    assert place_request(trial, CardRequest(4), []) is None


def test_the_given_nodes_are_not_modified() -> None:
    node = snapshot_node()
    place_request(TrialCluster([node]), CardRequest(4))
    assert node == snapshot_node()


def test_holdings_on_unknown_nodes_or_cards_are_ignored() -> None:
    trial = TrialCluster([snapshot_node()])
    trial.hold_placement(Placement("gone", (0,)), CardRequest(4))
    trial.hold_placement(Placement("n", (7,)), CardRequest(4))
    assert [place_request(trial, CardRequest(16)) for _ in range(3)] == [("n", (0,)), ("n", (1,)), None]


@st.composite
def clusters(draw: st.DrawFn) -> list[Node]:
    return [draw(node_strategy(name=f"n{number}")) for number in range(draw(st.integers(1, 3)))]


@settings(deadline=None)
@given(cluster=clusters(), requests=st.lists(request_strategy(), max_size=8))
def test_placements_of_a_trial_fit_together(cluster: list[Node], requests: list[CardRequest]) -> None:
    """Checked by counting units per card, not by asking the trial cluster."""
    trial, names = TrialCluster(cluster), [node.name for node in cluster]
    used = {(node.name, card.index): card.used_units for node in cluster for card in node.cards}
    units = {(node.name, card.index): card.units for node in cluster for card in node.cards}
    by_name = {node.name: node for node in cluster}
    for request in requests:
        placement = place_request(trial, request, names)
        if placement is None:
            continue
        name, indices = placement
        assert len(indices) == request.count
        assert not isinstance(find_fitting_cards(by_name[name], request), Unfit)
        for index in indices:
            card = by_name[name].cards[index]
            assert card.is_usable
            assert used[name, index] == 0 or not request.whole
            used[name, index] += card.units if request.whole else request.units
            assert used[name, index] <= units[name, index]


@settings(deadline=None)
@given(node=node_strategy(), request=request_strategy(), policy=st.sampled_from(("binpack", "spread", "node-binpack")))
def test_an_unfilled_node_is_evaluated_as_by_the_engine(node: Node, request: CardRequest, policy: PolicyName) -> None:
    evaluation = evaluate_node(node, request, TunedPolicy(policy))
    placement = TrialCluster([node]).find_placement("n", request, TunedPolicy(policy))
    assert (placement is not None) == isinstance(evaluation, ScoredCards)
    if placement is not None and isinstance(evaluation, ScoredCards):
        assert (placement.score, set(placement.cards)) == (evaluation.score, {card.index for card in evaluation.cards})
