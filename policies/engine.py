"""Asks `cards.fit` and the policies about nodes, and remembers what they said of a node that has not changed.

All caching of the project's decisions is here. An answer is kept by request shape and policy, node by node,
and is good as long as the node's version is the same; `plain_judge` is the same without memory, the oracle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from cachetools import LRUCache

from cards.fit import Reason, Unfit, fitting_cards
from cards.node import Node
from cards.request import Ask, Request
from policies import binpack, node_binpack, spread
from policies.policy import Demand, Policy, Ranked
from policies.tuning import PolicyName, PolicyTuning

POLICIES: Mapping[PolicyName, Policy] = {
    "binpack": binpack.place,
    "spread": spread.place,
    "node-binpack": node_binpack.place,
}
SHAPES_KEPT = 64
"""Request shapes whose answers are kept: a cluster asks for tens of sizes; 64 x 5,000 nodes bound the memory."""

Judgement = Ranked | Unfit


class LedgerView(Protocol):
    """What the engine needs of a ledger: nodes by name, as they are now for one pod."""

    def node_for(self, name: str, uid: str) -> Node | None:
        """The node as the pod `uid` finds it: a place that is reserved for it there is free for it.

        A node made for this pod alone has version 0, so that nobody else is given its answer.
        """
        ...

    def node_count(self) -> int: ...


@dataclass(slots=True)
class _Kept:
    version: int
    judgement: Judgement


class Engine:
    """Judges nodes for requests under one tuning. Same ledger, same request: same answer."""

    def __init__(self, ledger: LedgerView, tuning: PolicyTuning, demand: Demand | None = None) -> None:
        self._ledger = ledger
        self._tuning = tuning
        self._demand = demand or Demand()
        self._kept: LRUCache[tuple[Request, PolicyName], dict[str, _Kept]] = LRUCache(maxsize=SHAPES_KEPT)

    def policy_for(self, ask: Ask) -> PolicyName:
        """The pod's wish within what the operator allows, else the default."""
        return next((name for name in self._tuning.allowed if name == ask.policy), self._tuning.default)

    def judge(self, names: Iterable[str], ask: Ask, uid: str) -> dict[str, Judgement]:
        """For each name, in order, where the pod would go there, or why it cannot."""
        policy = self.policy_for(ask)
        kept = self._kept.setdefault((ask.request, policy), {})
        judged: dict[str, Judgement] = {}
        for name in names:
            node = self._ledger.node_for(name, uid)
            if node is None:
                judged[name] = Unfit(Reason.NOT_SEEN)
                kept.pop(name, None)
            elif (memory := kept.get(name)) is not None and memory.version == node.version:
                judged[name] = memory.judgement
            else:
                judged[name] = plain_judge(node, ask.request, policy, self._demand)
                if node.version:
                    kept[name] = _Kept(node.version, judged[name])
        self._forget_deleted_nodes(kept)
        return judged

    def _forget_deleted_nodes(self, kept: dict[str, _Kept]) -> None:
        """Nobody asks about a deleted node again: its answers go once they are more than those of living ones."""
        if len(kept) > 2 * self._ledger.node_count():
            for name in [name for name in kept if self._ledger.node_for(name, "") is None]:
                del kept[name]


def plain_judge(node: Node, request: Request, policy: PolicyName, demand: Demand) -> Judgement:
    """One node's answer, computed."""
    fitting = fitting_cards(node, request)
    if isinstance(fitting, Unfit):
        return fitting
    return POLICIES[policy](node, fitting, request, demand)


def in_order(judged: Mapping[str, Judgement]) -> list[str]:
    """The names that fit, best first: a total order, ties end in the node name."""
    fitting = [(-ranked.score, name) for name, ranked in judged.items() if isinstance(ranked, Ranked)]
    return [name for _, name in sorted(fitting)]
