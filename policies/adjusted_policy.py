"""A policy with the weights and the bound of a profile: it has the same functions as the policy's module.

weights: passed to the policy in the outlook
bound:   cards that would be fuller after placing are hidden from the policy if enough others fit; if not, the
policy sees all cards, and the node ranks after all nodes that have enough
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from policies.outlook import Outlook
from policies.policy import Policy, ScoredCards, ScoreTerm
from policies.weights import PolicyWeights
from vrampack.cards.node import Card, Node
from vrampack.cards.node_summary import NodeSummary
from vrampack.cards.request import CardRequest
from vrampack.cards.tuned_policy import TunedPolicy

OVER_BOUND = 1e9
"""Subtracted from such a node's score: more than any score, but small enough that scores a millionth apart stay distinct."""
OVER_BOUND_TERM = "fuller than the profile's bound"

ScoreSummaries = Callable[[Iterable[tuple[str, NodeSummary]], CardRequest, Outlook], Iterator[tuple[str, float]]]


def adjust_policy(policy: Policy, tuned: TunedPolicy) -> Policy:
    """The policy with these numbers; the policy itself if none differs from its own."""
    if tuned.weights and policy.WEIGHTS is not None:
        policy = WeightedPolicy(policy, policy.WEIGHTS.model_validate(dict(tuned.weights)))
    return policy if tuned.card_use_percent is None else BoundedPolicy(policy, tuned.card_use_percent)


class WeightedPolicy:
    """Passes the weights on to a policy."""

    def __init__(self, policy: Policy, weights: PolicyWeights) -> None:
        self.LOOKS_AHEAD = policy.LOOKS_AHEAD
        self.READS_HOSTS = policy.READS_HOSTS
        self.COUNTS_LEFTOVERS = policy.COUNTS_LEFTOVERS
        self.WEIGHTS = policy.WEIGHTS
        self._policy = policy
        self._weights = weights

    def choose_cards(
        self, node: Node, fitting: tuple[Card, ...], request: CardRequest, outlook: Outlook
    ) -> ScoredCards:
        return self._policy.choose_cards(node, fitting, request, outlook._replace(weights=self._weights))

    def score_nodes(
        self, summaries: Iterable[tuple[str, NodeSummary]], request: CardRequest, outlook: Outlook
    ) -> Iterator[tuple[str, float]]:
        return self._policy.score_nodes(summaries, request, outlook._replace(weights=self._weights))

    def list_terms(
        self, node: Node, chosen: tuple[Card, ...], request: CardRequest, outlook: Outlook
    ) -> tuple[ScoreTerm, ...]:
        return self._policy.list_terms(node, chosen, request, outlook._replace(weights=self._weights))

    def bound_scores(
        self, summaries: Iterable[tuple[str, NodeSummary]], request: CardRequest, outlook: Outlook
    ) -> Iterator[tuple[str, float]]:
        return self._policy.bound_scores(summaries, request, outlook._replace(weights=self._weights))


class BoundedPolicy:
    """Prefers cards that stay within a share of their memory. It refuses none, and ignores requests for whole cards."""

    def __init__(self, policy: Policy, card_use_percent: int) -> None:
        self.LOOKS_AHEAD = policy.LOOKS_AHEAD
        self.READS_HOSTS = policy.READS_HOSTS
        self.COUNTS_LEFTOVERS = policy.COUNTS_LEFTOVERS
        self.WEIGHTS = policy.WEIGHTS
        self._policy = policy
        self._percent = card_use_percent

    def choose_cards(
        self, node: Node, fitting: tuple[Card, ...], request: CardRequest, outlook: Outlook
    ) -> ScoredCards:
        within = tuple(card for card in fitting if self._stays_within(card.units, card.used_units, request))
        if len(within) >= request.count:
            return self._policy.choose_cards(self._hide_cards(node, request), within, request, outlook)
        scored = self._policy.choose_cards(node, fitting, request, outlook)
        return ScoredCards(scored.score - OVER_BOUND, scored.cards)

    def score_nodes(
        self, summaries: Iterable[tuple[str, NodeSummary]], request: CardRequest, outlook: Outlook
    ) -> Iterator[tuple[str, float]]:
        return self._score_summaries(self._policy.score_nodes, summaries, request, outlook)

    def list_terms(
        self, node: Node, chosen: tuple[Card, ...], request: CardRequest, outlook: Outlook
    ) -> tuple[ScoreTerm, ...]:
        if all(self._stays_within(card.units, card.used_units, request) for card in chosen):
            return self._policy.list_terms(self._hide_cards(node, request), chosen, request, outlook)
        over = ScoreTerm(OVER_BOUND_TERM, -OVER_BOUND)
        return (over, *self._policy.list_terms(node, chosen, request, outlook))

    def bound_scores(
        self, summaries: Iterable[tuple[str, NodeSummary]], request: CardRequest, outlook: Outlook
    ) -> Iterator[tuple[str, float]]:
        return self._score_summaries(self._policy.bound_scores, summaries, request, outlook)

    def _score_summaries(
        self,
        score: ScoreSummaries,
        summaries: Iterable[tuple[str, NodeSummary]],
        request: CardRequest,
        outlook: Outlook,
    ) -> Iterator[tuple[str, float]]:
        views: list[tuple[str, NodeSummary]] = []
        over: set[str] = set()
        for name, summary in summaries:
            view = self._narrow_summary(summary, request)
            if view is None:
                over.add(name)
            views.append((name, view or summary))
        for name, points in score(views, request, outlook):
            yield name, points - OVER_BOUND if name in over else points

    def _stays_within(self, units: int, used_units: int, request: CardRequest) -> bool:
        return request.whole or (used_units + request.units) * 100 <= self._percent * units

    def _hide_cards(self, node: Node, request: CardRequest) -> Node:
        """The node without the cards that would exceed the bound; its sums stay those of all cards."""
        cards = tuple(card for card in node.cards if self._stays_within(card.units, card.used_units, request))
        return node if len(cards) == len(node.cards) else replace(node, cards=cards)

    def _narrow_summary(self, summary: NodeSummary, request: CardRequest) -> NodeSummary | None:
        """The same for a summary; None if too few cards are left."""
        within = self._list_within(summary, request)
        if len(within) == len(summary.usable_cards):
            return summary
        return self._select_cards(summary, within, request) if len(within) >= request.count else None

    def _list_within(self, summary: NodeSummary, request: CardRequest) -> tuple[tuple[int, int], ...]:
        if request.whole:
            return summary.usable_cards
        percent, units = self._percent, request.units
        return tuple([card for card in summary.usable_cards if (card[1] + units) * 100 <= percent * card[0]])

    def _select_cards(
        self, summary: NodeSummary, cards: tuple[tuple[int, int], ...], request: CardRequest
    ) -> NodeSummary:
        """The summary, as policies read it, as if the node had only these cards."""
        by_model = summary.by_model
        if by_model is not None:
            by_model = {
                model: self._select_cards(part, self._list_within(part, request), request)
                for model, part in by_model.items()
            }
        return replace(
            summary,
            free_units=tuple(sorted([units - used for units, used in cards])),
            empty_card_units=tuple(sorted([units for units, used in cards if not used])),
            usable_cards=cards,
            by_model=by_model,
        )
