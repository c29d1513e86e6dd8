"""The nodes that one request fits, best first, under one policy: it scores states instead of nodes."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from heapq import heappop, heappush, nsmallest

from cachetools import LRUCache

from policies.engine.node_states import NodeState, NodeStates, StateKey
from policies.outlook import Outlook
from policies.policy import FittingView, Policy, build_view, find_bound_scores
from vrampack.cards.host_room import HostResources
from vrampack.cards.request import CardRequest
from vrampack.cards.shape import Shape

MIN_BOUNDED_STATES = 48
"""Fewer new states than this are all scored at once, without bounds."""
STATES_AT_A_TIME = 16
MIN_GONE_STATES = 64
"""At least this many states that are gone may be kept."""
MAX_SINGLE_SCORES = 1024
"""How many scores of shapes that only some pods find are kept."""


class NodeRanking:
    """The ranking for one request, which names no cards, and one outlook. It follows the states when it is next asked."""

    def __init__(self, states: NodeStates, request: CardRequest, policy: Policy, outlook: Outlook) -> None:
        self.outlook = outlook
        self.states = states
        self._request = request
        self._policy = policy
        self._bound_scores = find_bound_scores(policy) if request.count == 1 and not request.whole else None
        self._last_number = self._cleaned_number = 0
        self._new_states: list[NodeState] = []
        """States up to `_last_number` that have neither a score nor a bound."""
        self._has_best = True
        """Whether no state with a bound can be as good as the best scored one, as far as states came in large numbers."""
        self._buckets: dict[float, list[NodeState]] = {}
        self._worst_scores: list[float] = []
        """The negated scores of the buckets: a heap whose first is the best."""
        self._bounded: list[tuple[float, int, NodeState]] = []
        """Unscored states with the negated upper bounds of their scores: a heap, too."""
        self._single_scores: LRUCache[StateKey, float | None] = LRUCache(MAX_SINGLE_SCORES)

    def follow_slice(self, limit: int) -> bool:
        """Score at most `limit` new states, or a few of those that may be the best; true when more are left."""
        self._note_states()
        if self._new_states:
            self._score_new_states(limit)
            return bool(self._new_states) or not self._has_best
        return not self._has_best and self._score_best_states()

    def has_more_changes_than(self, limit: int) -> bool:
        """Whether more than `limit` states are new, or those that may be the best have yet to be found among many."""
        self._note_states()
        return len(self._new_states) > limit or not self._has_best

    def score_shape(self, shape: Shape, host: HostResources | None) -> float | None:
        """The score of a node of this shape, which need not be in any state; None if the request does not fit."""
        key = shape, host
        if key in self._single_scores:
            return self._single_scores[key]
        view, score = build_view(shape, self._request, host), None
        if view is not None:
            ((score, _),) = self._policy.rate([view], self._request, self.outlook)
        self._single_scores[key] = score
        return score

    def rank_nodes(
        self, candidates: Container[str], count: int, hidden: Collection[str] = ()
    ) -> list[tuple[float, str]]:
        """The best `count` of the candidates that fit, with scores, best first; equal scores sorted by name. `hidden` are left out."""
        best: list[tuple[float, str]] = []
        passed: list[float] = []
        self._note_states()
        self._score_new_states(len(self._new_states))
        while len(best) < count:
            while self._score_best_states():
                pass
            if not self._worst_scores:
                break
            score = -self._worst_scores[0]
            bucket = [state for state in self._buckets[score] if state.names]
            if bucket:
                self._buckets[score] = bucket
                best += ((score, name) for name in _list_first_names(bucket, candidates, hidden, count - len(best)))
                if len(best) < count:
                    passed.append(heappop(self._worst_scores))
            else:
                del self._buckets[score]
                heappop(self._worst_scores)
        for negative in passed:
            heappush(self._worst_scores, negative)
        return best

    def _note_states(self) -> None:
        if self.states.last_number != self._last_number:
            self._new_states += self.states.list_states_since(self._last_number)
            self._last_number = self.states.last_number
            if self._last_number - self._cleaned_number > 2 * len(self.states) + MIN_GONE_STATES:
                self._cleaned_number = self._last_number
                self._drop_gone_states()

    def _drop_gone_states(self) -> None:
        """Soft reservations make new states without end, and a state that is not among the best is never looked at again."""
        present = {score: [state for state in states if state.names] for score, states in self._buckets.items()}
        self._buckets = {score: states for score, states in present.items() if states}
        self._worst_scores = sorted([-score for score in self._buckets])
        self._bounded = sorted([each for each in self._bounded if each[2].names])

    def _score_new_states(self, limit: int) -> None:
        """Score at most `limit` of them, or put bounds on them if there are many."""
        states = self._new_states[:limit]
        if len(self._new_states) < MIN_BOUNDED_STATES or self._bound_scores is None:
            self._score_states(states)
        else:
            views = self._view_states(states)
            bounds = self._bound_scores([view for _, view in views], self._request, self.outlook)
            for (state, _), bound in zip(views, bounds, strict=True):
                heappush(self._bounded, (-bound, state.number, state))
                self._has_best = False
        del self._new_states[:limit]

    def _view_states(self, states: Iterable[NodeState]) -> list[tuple[NodeState, FittingView]]:
        """Those that the request fits, with what the policy sees of them."""
        views = [(state, build_view(state.shape, self._request, state.host)) for state in states if state.names]
        return [(state, view) for state, view in views if view is not None]

    def _score_states(self, states: Iterable[NodeState]) -> None:
        views = self._view_states(states)
        if not views:
            return
        ratings = self._policy.rate([view for _, view in views], self._request, self.outlook)
        for (state, _), (score, _) in zip(views, ratings, strict=True):
            self._put_score(state, score)

    def _put_score(self, state: NodeState, score: float) -> None:
        bucket = self._buckets.get(score)
        if bucket is None:
            heappush(self._worst_scores, -score)
            self._buckets[score] = [state]
        else:
            bucket.append(state)

    def _score_best_states(self) -> bool:
        """Score some of the states that may be as good as the best scored one; false if there are none."""
        bounded, scores = self._bounded, self._worst_scores
        self._has_best = not bounded or (bool(scores) and bounded[0][0] > scores[0])
        if not self._has_best:
            self._score_states([heappop(bounded)[2] for _ in range(min(STATES_AT_A_TIME, len(bounded)))])
        return not self._has_best


def _list_first_names(
    states: Sequence[NodeState], candidates: Container[str], hidden: Collection[str], count: int
) -> Sequence[str]:
    firsts: list[str] = []
    for state in states:
        left = count
        for name in state.names:
            if name in candidates and name not in hidden:
                firsts.append(name)
                left -= 1
                if not left:
                    break
    return nsmallest(count, firsts)
