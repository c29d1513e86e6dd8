"""The verdict on one node for one request under one policy, computed without any cache: the engine's oracle."""

from __future__ import annotations

from collections.abc import Mapping

from policies.adjusted_policy import adjust_policy
from policies.open_cards import pick_cards
from policies.outlook import NO_OUTLOOK, Outlook
from policies.policy import FittingView, Policy, ScoredCards, ScoreTerms
from policies.registry import POLICIES
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.node import Card, Node
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import CardRequest
from vrampack.cards.shape import Shape, open_card
from vrampack.cards.tuned_policy import TunedPolicy

Evaluation = ScoredCards | Unfit


def evaluate_node(
    node: Node | None, request: CardRequest, policy: TunedPolicy, outlook: Outlook = NO_OUTLOOK
) -> Evaluation:
    """Where the pod would go on the node, or why it cannot; `node` is None for a node that the ledger does not have."""
    return evaluate_under_policy(node, request, adjust_policy(POLICIES[policy.name], policy), outlook)


def evaluate_under_policy(
    node: Node | None, request: CardRequest, policy: Policy, outlook: Outlook, shape: Shape | None = None
) -> Evaluation:
    """The same for a policy that need not be registered. It gets only cards that fit, so it cannot choose another.

    `shape` is the node's, if it is known.
    """
    if node is None:
        return Unfit(UnfitReason.NOT_SEEN)
    fitting = find_fitting_cards(node, request)
    if isinstance(fitting, Unfit):
        return fitting
    (rating,) = policy.rate([_view_node(node, shape or Shape(node), fitting, request, outlook)], request, outlook)
    return ScoredCards(rating.score, pick_cards(fitting, rating.cards))


def list_score_terms(
    policy: TunedPolicy, node: Node, scored: ScoredCards, request: CardRequest, outlook: Outlook = NO_OUTLOOK
) -> ScoreTerms:
    """The terms of the policy's verdict on this node, for people who ask why; their sum is the score."""
    fitting = find_fitting_cards(node, request)
    view = _view_node(node, Shape(node), scored.cards if isinstance(fitting, Unfit) else fitting, request, outlook)
    return adjust_policy(POLICIES[policy.name], policy).list_terms(view, scored.cards, request, outlook)


def sort_by_score(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """The names that fit, best first, in a total order: the node name breaks ties."""
    fitting = [(-scored.score, name) for name, scored in evaluations.items() if isinstance(scored, ScoredCards)]
    return [name for _, name in sorted(fitting)]


def _view_node(
    node: Node, shape: Shape, fitting: tuple[Card, ...], request: CardRequest, outlook: Outlook
) -> FittingView:
    host = outlook.hosts.get(node.name)
    return FittingView(shape, shape.list_open_cards(request), tuple(sorted(map(open_card, fitting))), host)
