"""The nodes that one request fits, best first, under one policy: it scores states instead of nodes."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from heapq import heapify, heappop, heappush, nsmallest
from sys import maxsize

from policies.engine.node_states import NodeState, NodeStates, StateKey
from policies.outlook import Outlook
from policies.policy import FittingView, Policy, build_view
from vrampack.cards.host_room import HostResources
from vrampack.cards.request import CardRequest
from vrampack.cards.shape import Shape

MIN_BOUNDED_STATES = 48
"""Fewer new states than this are all scored at once, without bounds."""
STATES_AT_A_TIME = 16
MAX_SINGLE_SCORES = 1024
"""How many scores of shapes that only some pods find are kept."""


class NodeRanking:
    """The ranking for one request, which names no cards, and one outlook. It follows the states when it is next asked."""

    def __init__(self, states: NodeStates, request: CardRequest, policy: Policy, outlook: Outlook) -> None:
        self.outlook = outlook
        self.states = states
        self._request = request
        self._policy = policy
        self._bound_scores = getattr(policy, "bound_scores", None)
        self._last_number = 0
        """Buckets of the states that have been scored."""
        self._buckets: dict[float, list[NodeState]] = {}
        self._worst_scores: list[float] = []
        """The negated scores of the buckets: a heap whose first is the best."""
        self._bounded: list[tuple[float, int, NodeState]] = []
        """Unscored states with the negated upper bounds of their scores: a heap, too."""
        self._single_scores: dict[StateKey, float | None] = {}

    def follow_states(self) -> None:
        """Score the new states."""
        self.follow_slice(maxsize)

    def follow_slice(self, limit: int) -> bool:
        """The same for at most `limit` states; true when more are left."""
        if self.states.last_number == self._last_number:
            return False
        new_states = self.states.list_states_since(self._last_number)
        has_more = len(new_states) > limit
        if has_more:
            del new_states[limit:]
        self._last_number = new_states[-1].number if has_more else self.states.last_number
        self._score_states(new_states)
        return has_more

    def has_more_states_than(self, limit: int) -> bool:
        """Whether more than `limit` states are new."""
        return len(self.states.list_states_since(self._last_number)) > limit

    def score_shape(self, shape: Shape, host: HostResources | None) -> float | None:
        """The score of a node of this shape, which need not be in any state; None if the request does not fit."""
        key = shape, host
        if key in self._single_scores:
            return self._single_scores[key]
        view = build_view(shape, self._request, host)
        score = None
        if view is not None:
            ((score, _),) = self._policy.rate([view], self._request, self.outlook)
        if len(self._single_scores) >= MAX_SINGLE_SCORES:
            self._single_scores.clear()
        self._single_scores[key] = score
        return score

    def rank_nodes(
        self, candidates: Container[str], count: int, hidden: Collection[str] = ()
    ) -> list[tuple[float, str]]:
        """The best `count` of the candidates that fit, with scores, best first; equal scores sorted by name. `hidden` are left out."""
        best: list[tuple[float, str]] = []
        passed: list[float] = []
        while len(best) < count:
            self._score_best_states()
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

    def _score_states(self, new_states: Iterable[NodeState]) -> None:
        request = self._request
        views = [(state, view) for state in new_states if (view := build_view(state.shape, request, state.host))]
        if len(views) < MIN_BOUNDED_STATES or self._bound_scores is None:
            self._put_scores(views)
            return
        bounds = self._bound_scores([view for _, view in views], request, self.outlook)
        self._bounded += [(-bound, state.number, state) for (state, _), bound in zip(views, bounds, strict=True)]
        heapify(self._bounded)

    def _put_scores(self, views: Sequence[tuple[NodeState, FittingView]]) -> None:
        if not views:
            return
        ratings = self._policy.rate([view for _, view in views], self._request, self.outlook)
        for (state, _), (score, _) in zip(views, ratings, strict=True):
            bucket = self._buckets.get(score)
            if bucket is None:
                heappush(self._worst_scores, -score)
                self._buckets[score] = [state]
            else:
                bucket.append(state)

    def _score_best_states(self) -> None:
        """Score states until no unscored one can be as good as the best scored one."""
        while self._bounded and (not self._worst_scores or self._bounded[0][0] <= self._worst_scores[0]):
            best = [heappop(self._bounded)[2] for _ in range(min(STATES_AT_A_TIME, len(self._bounded)))]
            views = [(state, build_view(state.shape, self._request, state.host)) for state in best if state.names]
            self._put_scores([(state, view) for state, view in views if view is not None])


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
