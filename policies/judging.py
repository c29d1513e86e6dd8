"""One node, one request: which policy decides and what it says, without any memory. The engine's oracle."""

from __future__ import annotations

from collections.abc import Mapping

from policies import binpack, node_binpack, spread
from policies.policy import Demand, Policy, Ranked, Scores
from policies.tuning import PolicyName
from vrampack.cards.fit import Reason, Unfit, fitting_cards
from vrampack.cards.node import Node
from vrampack.cards.request import Request

POLICIES: Mapping[PolicyName, Policy] = {
    "binpack": binpack.place,
    "spread": spread.place,
    "node-binpack": node_binpack.place,
}
SCORES: Mapping[PolicyName, Scores] = {
    "binpack": binpack.scores,
    "spread": spread.scores,
    "node-binpack": node_binpack.scores,
}

Judgement = Ranked | Unfit


def judge(node: Node | None, request: Request, policy: PolicyName, demand: Demand) -> Judgement:
    """Where the pod would go on the node, or why it cannot; None is a node that nobody has seen."""
    if node is None:
        return Unfit(Reason.NOT_SEEN)
    fitting = fitting_cards(node, request)
    if isinstance(fitting, Unfit):
        return fitting
    return POLICIES[policy](node, fitting, request, demand)


def in_order(judged: Mapping[str, Judgement]) -> list[str]:
    """The names that fit, best first: a total order, ties end in the node name."""
    fitting = [(-ranked.score, name) for name, ranked in judged.items() if isinstance(ranked, Ranked)]
    return [name for _, name in sorted(fitting)]
