"""A policy with the weights and the bound of a profile.

weights: passed to the policy in the outlook
bound:   cards that would be fuller after placing are hidden from the policy if enough others fit; if not, the
policy sees all cards, and the node ranks after all nodes that have enough
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from policies.outlook import Outlook, PolicyWeights
from policies.policy import BoundScores, FittingView, Policy, Rating, ScoreTerm, ScoreTerms, find_bound_scores
from vrampack.cards.node import Card
from vrampack.cards.request import CardRequest
from vrampack.cards.shape import OpenCard
from vrampack.cards.tuned_policy import TunedPolicy

OVER_BOUND = 1e9
"""Subtracted from such a node's score: more than any score, but small enough that scores a millionth apart stay distinct."""
OVER_BOUND_TERM = "fuller than the profile's bound"


def adjust_policy(policy: Policy, tuned: TunedPolicy) -> Policy:
    """The policy with these numbers; the policy itself if none differs from its own."""
    model = policy.TRAITS.weights
    weights = None if model is None or not tuned.weights else model.model_validate(dict(tuned.weights))
    if weights is None and tuned.card_use_percent is None:
        return policy
    return AdjustedPolicy(policy, weights, tuned.card_use_percent)


class AdjustedPolicies(dict[TunedPolicy, Policy]):
    """Policies by name and numbers. A look-up adds a missing one; only configurations name new ones, so it stays small."""

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        super().__init__()
        self._policies = policies

    def __missing__(self, tuned: TunedPolicy) -> Policy:
        policy = self[tuned] = adjust_policy(self._policies[tuned.name], tuned)
        return policy


class AdjustedPolicy:
    """Has what the policy's module has. A bound refuses no card, and ignores requests for whole cards."""

    def __init__(self, policy: Policy, weights: PolicyWeights | None, card_use_percent: int | None) -> None:
        self.TRAITS = policy.TRAITS
        self._policy = policy
        self._weights = weights
        self._percent = card_use_percent
        bound_scores = find_bound_scores(policy)
        self.bound_scores = None if bound_scores is None else partial(self._bound_scores, bound_scores)

    def rate(self, views: Iterable[FittingView], request: CardRequest, outlook: Outlook) -> Iterator[Rating]:
        within, shown = self._show_cards(views, request)
        ratings = self._policy.rate(shown, request, self._adjust_outlook(outlook))
        for is_within, rating in zip(within, ratings, strict=True):
            yield rating if is_within else rating._replace(score=rating.score - OVER_BOUND)

    def list_terms(
        self, view: FittingView, chosen: tuple[Card, ...], request: CardRequest, outlook: Outlook
    ) -> ScoreTerms:
        near, outlook = self._hide_cards(view, request), self._adjust_outlook(outlook)
        terms = self._policy.list_terms(near or view, chosen, request, outlook)
        return terms if near is not None else (ScoreTerm(OVER_BOUND_TERM, -OVER_BOUND), *terms)

    def _bound_scores(
        self, bound_scores: BoundScores, views: Iterable[FittingView], request: CardRequest, outlook: Outlook
    ) -> Iterator[float]:
        within, shown = self._show_cards(views, request)
        bounds = bound_scores(shown, request, self._adjust_outlook(outlook))
        for is_within, bound in zip(within, bounds, strict=True):
            yield bound if is_within else bound - OVER_BOUND

    def _show_cards(
        self, views: Iterable[FittingView], request: CardRequest
    ) -> tuple[Sequence[bool], Sequence[FittingView]]:
        """Whether enough cards of each view are within the bound, and the view with these alone, or else with all."""
        views = list(views)
        within = [self._hide_cards(view, request) for view in views]
        return [near is not None for near in within], [near or view for near, view in zip(within, views, strict=True)]

    def _adjust_outlook(self, outlook: Outlook) -> Outlook:
        return outlook if self._weights is None else outlook._replace(weights=self._weights)

    def _hide_cards(self, view: FittingView, request: CardRequest) -> FittingView | None:
        """The view without the cards that would exceed the bound; None if too few are left."""
        percent, units = self._percent, request.units
        if percent is None or request.whole:
            return view

        def stay_within(cards: Iterable[OpenCard]) -> tuple[OpenCard, ...]:
            return tuple([card for card in cards if (card.used_units + units) * 100 <= percent * card.units])

        fitting = stay_within(view.fitting)
        return view._replace(cards=stay_within(view.cards), fitting=fitting) if len(fitting) >= request.count else None
