"""The nodes that one request fits, best first, under a policy that looks ahead: states are scored, not nodes."""

from __future__ import annotations

from collections.abc import Container, Sequence
from heapq import heappop, heappush, merge
from itertools import islice
from sys import maxsize

from policies.engine.node_states import NodeState, NodeStates
from policies.outlook import Outlook
from policies.policy import Policy
from vrampack.cards.node_summary import find_equivalence_class, get_request_kind, select_models
from vrampack.cards.request import CardRequest


class NodeRanking:
    """For one request and one outlook. It follows the states when it is next asked."""

    def __init__(self, states: NodeStates, request: CardRequest, policy: Policy, outlook: Outlook) -> None:
        self.outlook = outlook
        self.states = states
        self._request = request
        self._kind = get_request_kind(request)
        self._policy = policy
        self._last_number = 0
        """Of the states that have been scored."""
        self._buckets: dict[float, list[NodeState]] = {}
        self._worst_scores: list[float] = []
        """The scores of the buckets, negative: a heap whose first is the best."""

    def follow_states(self) -> None:
        """Score the states that are new."""
        self.follow_slice(maxsize)

    def follow_slice(self, limit: int) -> bool:
        """The same for `limit` states at most; whether there are more."""
        new_states = self.states.list_states_since(self._last_number)
        has_more = len(new_states) > limit
        if has_more:
            del new_states[limit:]
        self._last_number = new_states[-1].number if has_more else self.states.last_number
        self._score_states(new_states)
        return has_more

    def _score_states(self, new_states: Sequence[NodeState]) -> None:
        request, kind = self._request, self._kind
        fitting = [
            state
            for state in self._list_roomy_states(new_states)
            if find_equivalence_class(state.summary, kind).find_obstacle(request) is None
        ]
        if not fitting:
            return
        summaries = [(state.names[0], select_models(state.summary, request.models)) for state in fitting]
        scores = self._policy.score_nodes(summaries, request, self.outlook)
        for state, (_, score) in zip(fitting, scores, strict=True):
            bucket = self._buckets.get(score)
            if bucket is None:
                heappush(self._worst_scores, -score)
                self._buckets[score] = [state]
            else:
                bucket.append(state)

    def _list_roomy_states(self, new_states: Sequence[NodeState]) -> list[NodeState]:
        """Those that have enough free: most have too little, and no more is asked of them."""
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
        """The best `count` of the candidates that fit, with scores, best first; equal scores in the order of names."""
        best: list[tuple[float, str]] = []
        passed: list[float] = []
        while self._worst_scores and len(best) < count:
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
