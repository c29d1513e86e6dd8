"""One node, one request: which policy decides and what it says, without any memory. The engine's oracle."""

from __future__ import annotations

from collections.abc import Mapping

from policies import binpack, node_binpack, spread
from policies.policy import Demand, NodeScorer, Policy, ScoredCards
from policies.tuning import PolicyName
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.node import Node
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import CardRequest

POLICIES: Mapping[PolicyName, Policy] = {
    "binpack": binpack.choose_cards,
    "spread": spread.choose_cards,
    "node-binpack": node_binpack.choose_cards,
}
NODE_SCORERS: Mapping[PolicyName, NodeScorer] = {
    "binpack": binpack.score_nodes,
    "spread": spread.score_nodes,
    "node-binpack": node_binpack.score_nodes,
}

Evaluation = ScoredCards | Unfit


def evaluate_node(node: Node | None, request: CardRequest, policy: PolicyName, demand: Demand) -> Evaluation:
    """Where the pod would go on the node, or why it cannot; None is a node that nobody has seen."""
    if node is None:
        return Unfit(UnfitReason.NOT_SEEN)
    fitting = find_fitting_cards(node, request)
    if isinstance(fitting, Unfit):
        return fitting
    return POLICIES[policy](node, fitting, request, demand)


def sort_by_score(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """The names that fit, best first: a total order, ties end in the node name."""
    fitting = [(-ranked.score, name) for name, ranked in evaluations.items() if isinstance(ranked, ScoredCards)]
    return [name for _, name in sorted(fitting)]
