"""What a policy is: a pure function from one node and one request to a rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from vrampack.cards.node import Card, Node
from vrampack.cards.node_summary import NodeSummary
from vrampack.cards.request import CardRequest


@dataclass(frozen=True, slots=True)
class Demand:
    """What the cluster usually asks: request sizes in units and how often, for policies that look ahead."""

    sizes: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class ScoredCards:
    """How good a node is and which of its cards to take. Higher is better; equal scores end in the node name."""

    score: float
    cards: tuple[Card, ...]


class Policy(Protocol):
    """Called only for nodes that fit; `fitting` are the cards that `vrampack.cards.fit` allows, by index.

    The design's `place(node, request, demand)` with the answer of `vrampack.cards.fit` handed in: every caller has it
    already, and a policy cannot then choose a card that does not fit.
    """

    def __call__(self, node: Node, fitting: tuple[Card, ...], request: CardRequest, demand: Demand) -> ScoredCards: ...


class NodeScorer(Protocol):
    """The scores of `Policy` alone, by name, for a plain request (`vrampack.cards.node_summary.is_plain`) on nodes that fit.

    Ranking thousands of nodes needs no cards, and no call for each. It must be the same numbers, which a property test
    holds it to.
    """

    def __call__(
        self, summaries: Iterable[tuple[str, NodeSummary]], request: CardRequest, demand: Demand
    ) -> Iterator[tuple[str, float]]: ...
