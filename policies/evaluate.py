"""The verdict on one node for one request under one policy, computed without any cache: the engine's oracle."""

from __future__ import annotations

from collections.abc import Mapping

from policies.policy import ScoredCards, ScoreTerm
from policies.registry import POLICIES
from policies.tuning import PolicyName
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.node import Node
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import CardRequest

Evaluation = ScoredCards | Unfit


def evaluate_node(node: Node | None, request: CardRequest, policy: PolicyName) -> Evaluation:
    """Where the pod would go on the node, or why it cannot; None is a node that the ledger does not have."""
    if node is None:
        return Unfit(UnfitReason.NOT_SEEN)
    fitting = find_fitting_cards(node, request)
    if isinstance(fitting, Unfit):
        return fitting
    return POLICIES[policy].choose_cards(node, fitting, request)


def list_score_terms(
    policy: PolicyName, node: Node, scored: ScoredCards, request: CardRequest
) -> tuple[ScoreTerm, ...]:
    """The terms of the policy's verdict on this node, for people who ask why; their sum is the score."""
    return POLICIES[policy].list_terms(node, scored.cards, request)


def sort_by_score(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """The names that fit, best first: a total order, ties end in the node name."""
    fitting = [(-scored.score, name) for name, scored in evaluations.items() if isinstance(scored, ScoredCards)]
    return [name for _, name in sorted(fitting)]
