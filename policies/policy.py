"""What a policy is: a module of pure functions that score nodes and choose cards. `registry.py` lists every policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from policies.outlook import Outlook
from policies.weights import PolicyWeights
from vrampack.cards.node import Card, Node
from vrampack.cards.node_summary import NodeSummary
from vrampack.cards.request import CardRequest


@dataclass(frozen=True, slots=True)
class ScoredCards:
    """How good a node is and which of its cards to take. Higher is better; the node name breaks ties."""

    score: float
    cards: tuple[Card, ...]


@dataclass(frozen=True, slots=True)
class ScoreTerm:
    """A part of a score, in words."""

    name: str
    value: float


class Policy(Protocol):
    """The functions of a policy's module."""

    LOOKS_AHEAD: bool
    """Whether it reads the outlook. If no policy does, the outlook is not computed."""
    READS_HOSTS: bool
    """Whether it reads what hosts have left. If no policy does, CPU and memory are not counted."""
    COUNTS_LEFTOVERS: bool
    """Whether it also reads `Outlook.leftovers`: its scores are recomputed whenever these are."""

    @property
    def WEIGHTS(self) -> type[PolicyWeights] | None:  # noqa: N802 - a constant of a module
        """The type of `Outlook.weights`, if a configuration changes them; None: the policy has no weights."""
        ...

    def choose_cards(
        self, node: Node, fitting: tuple[Card, ...], request: CardRequest, outlook: Outlook, /
    ) -> ScoredCards:
        """Score a node that fits and choose among `fitting`, the cards that `vrampack.cards.fit` allows, by index.

        The caller has those cards already, and a policy that gets them cannot choose one that does not fit.
        """
        ...

    def score_nodes(
        self, summaries: Iterable[tuple[str, NodeSummary]], request: CardRequest, outlook: Outlook, /
    ) -> Iterator[tuple[str, float]]:
        """The scores of `choose_cards` alone, by name, for a plain request on nodes that fit.

        Ranking thousands of nodes needs no cards, and no call for each node. A property test holds both to the same scores.
        """
        ...

    def list_terms(
        self, node: Node, chosen: tuple[Card, ...], request: CardRequest, outlook: Outlook, /
    ) -> tuple[ScoreTerm, ...]:
        """The terms that add up to the node's score, once `choose_cards` has chosen these cards."""
        ...

    def bound_scores(
        self, summaries: Iterable[tuple[str, NodeSummary]], request: CardRequest, outlook: Outlook, /
    ) -> Iterator[tuple[str, float]]:
        """Upper bounds of the scores that are cheaper to compute, so that only nodes that may be best are scored.

        `score_nodes` itself if nothing is much cheaper.
        """
        ...
