"""The nodes that one request fits, best first, under a policy that looks ahead: it scores states instead of nodes."""

from __future__ import annotations

from collections.abc import Container, Sequence
from heapq import heapify, heappop, heappush, merge
from itertools import islice
from sys import maxsize

from policies.engine.node_states import NodeState, NodeStates
from policies.outlook import Outlook
from policies.policy import Policy
from vrampack.cards.node_summary import NodeSummary, get_request_kind, select_view
from vrampack.cards.request import CardRequest

MIN_BOUNDED_STATES = 48
"""Fewer new states than this are all scored at once, without bounds."""
STATES_AT_A_TIME = 16


class NodeRanking:
    """The ranking for one request and one outlook. It follows the states when it is next asked."""

    def __init__(self, states: NodeStates, request: CardRequest, policy: Policy, outlook: Outlook) -> None:
        self.outlook = outlook
        self.states = states
        self._request = request
        self._kind = get_request_kind(request)
        self._policy = policy
        self._last_number = 0
        """Buckets of the states that have been scored."""
        self._buckets: dict[float, list[NodeState]] = {}
        self._worst_scores: list[float] = []
        """The negated scores of the buckets: a heap whose first is the best."""
        self._bounded: list[tuple[float, int, NodeState]] = []
        """Unscored states with the negated upper bounds of their scores: a heap, too."""

    def follow_states(self) -> None:
        """Score the new states."""
        self.follow_slice(maxsize)

    def follow_slice(self, limit: int) -> bool:
        """The same for at most `limit` states; true when more are left."""
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

    def _score_states(self, new_states: Sequence[NodeState]) -> None:
        request, kind = self._request, self._kind
        fitting = [
            state
            for state in self._list_roomy_states(new_states)
            if state.find_equivalence_class(kind).find_obstacle(request) is None
        ]
        if len(fitting) < MIN_BOUNDED_STATES:
            self._put_scores(fitting)
            return
        bounds = self._policy.bound_scores(self._list_summaries(fitting), request, self.outlook)
        self._bounded += [(-bound, state.number, state) for state, (_, bound) in zip(fitting, bounds, strict=True)]
        heapify(self._bounded)

    def _list_summaries(self, states: Sequence[NodeState]) -> list[tuple[str, NodeSummary]]:
        request = self._request
        if request.models is None and request.rules is None:
            return [(state.names[0], state.summary) for state in states]
        return [(state.names[0], select_view(state.summary, request)) for state in states]

    def _put_scores(self, states: Sequence[NodeState]) -> None:
        if not states:
            return
        scores = self._policy.score_nodes(self._list_summaries(states), self._request, self.outlook)
        for state, (_, score) in zip(states, scores, strict=True):
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
            self._put_scores([state for state in best if state.names])

    def _list_roomy_states(self, new_states: Sequence[NodeState]) -> list[NodeState]:
        """The states with enough free units: most have too little, and need no further check."""
        units, count = self._request.units, self._request.count
        if not count:
            return list(new_states)
        if count == 1:
            return [state for state in new_states if state.largest_free_units >= units]
        return [
            state
            for state in new_states
            if state.largest_free_units >= units
            and len(free := state.summary.free_units) >= count
            and free[-count] >= units
        ]

    def rank_nodes(self, candidates: Container[str], count: int) -> list[tuple[float, str]]:
        """The best `count` of the candidates that fit, with scores, best first; equal scores sorted by name."""
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
                best += ((score, name) for name in _list_first_names(bucket, candidates, count - len(best)))
                if len(best) < count:
                    passed.append(heappop(self._worst_scores))
            else:
                del self._buckets[score]
                heappop(self._worst_scores)
        for negative in passed:
            heappush(self._worst_scores, negative)
        return best


def _list_first_names(states: Sequence[NodeState], candidates: Container[str], count: int) -> Sequence[str]:
    if count == 1:
        firsts = [name for state in states if (name := _find_first_name(state, candidates)) is not None]
        return (min(firsts),) if firsts else ()
    several = [islice((name for name in state.names if name in candidates), count) for state in states]
    return list(islice(merge(*several), count))


def _find_first_name(state: NodeState, candidates: Container[str]) -> str | None:
    for name in state.names:
        if name in candidates:
            return name
    return None
