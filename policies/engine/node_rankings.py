"""All that policies that look ahead need of the engine: the outlook, states of nodes, and a ranking for each request."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cachetools import LRUCache

from policies.engine.cluster_view import PriorityFloor
from policies.engine.host_rooms import HostRooms
from policies.engine.node_ranking import NodeRanking
from policies.engine.node_states import NodeStates
from policies.engine.node_summary_index import NodeSummaryIndex
from policies.mix.forecast import Forecast
from policies.outlook import NO_OUTLOOK, Outlook
from policies.policy import Policy
from policies.tuning import PolicyName
from vrampack.cards.host_room import HostResources
from vrampack.cards.request import CardRequest

MAX_RANKINGS = 256
"""One for each card request and amount of CPU and memory. A ranking takes 0.1 KB a state."""
MAX_FLOORS = 5
"""As many as there are views of the cluster, and the one without a floor."""
STATES_PER_SLICE = 200
"""States scored between two steps: 2 to 4 ms."""
LEFTOVER_LAG = 64
"""Leftovers are counted again when one node in so many has changed."""


class RankingKey(NamedTuple):
    """Whose scores a ranking has. CPU and memory are here and in no key of verdicts."""

    request: CardRequest
    """Narrowed to what the hardware can tell apart."""
    policy: PolicyName
    floor: PriorityFloor
    host: HostResources | None


class NodeRankings:
    """For all views of one engine. Nothing is kept until a policy that looks ahead is asked."""

    def __init__(self, hosts: HostRooms, policies: Mapping[PolicyName, Policy]) -> None:
        self._hosts = hosts
        self._policies = policies
        self.forecast = NO_OUTLOOK.forecast
        self._states: LRUCache[PriorityFloor, NodeStates] = LRUCache(MAX_FLOORS)
        self._rankings: OrderedDict[RankingKey, NodeRanking] = OrderedDict()
        """The least recently asked for first. No `LRUCache`: keys take long to hash, and it does that five times."""
        self._leftovers: Mapping[tuple[int, int], int] = {}
        self._leftovers_counted_at = 0

    def adopt_forecast(self, forecast: Forecast) -> Iterator[None]:
        """Build all rankings for this forecast in short steps, then rank by it; until then the forecast before holds."""
        renewed: dict[RankingKey, NodeRanking] = {}
        for key, ranking in list(self._rankings.items()):
            outlook = ranking.outlook._replace(forecast=forecast)
            renewed[key] = NodeRanking(ranking.states, key.request, self._policies[key.policy], outlook)
            while renewed[key].follow_slice(STATES_PER_SLICE):
                yield
            yield
        self.forecast = forecast
        self._rankings.clear()
        for key, ranking in renewed.items():
            if ranking.states is self._states.get(key.floor) and ranking.outlook.leftovers is self._leftovers:
                self._rankings[key] = ranking

    def clear(self) -> None:
        self._rankings.clear()

    def drop_floor(self, floor: PriorityFloor) -> None:
        """Its view is another one."""
        self._states.pop(floor, None)
        for key in [key for key in self._rankings if key.floor == floor]:
            del self._rankings[key]

    def get_outlook(self, policy: Policy, host: HostResources | None) -> Outlook:
        """What the policy may know for a request that takes so much of its host."""
        if not policy.LOOKS_AHEAD:
            return NO_OUTLOOK
        request_host = None if host is None or not policy.READS_HOSTS else self._hosts.round_up(host)
        return Outlook(self.forecast, self._hosts.rooms, request_host, self._leftovers)

    def get_node_context(self, policy_name: PolicyName, name: str, host: HostResources | None) -> object:
        """What else a score on this node depends on: equal contexts, equal scores, while the forecast is the same."""
        policy = self._policies[policy_name]
        if not policy.LOOKS_AHEAD:
            return None
        request_host = self.get_outlook(policy, host).request_host
        return self._hosts.rooms.get(name), request_host, self._leftovers_counted_at if policy.COUNTS_LEFTOVERS else 0

    def follow_slice(self, index: NodeSummaryIndex, floor: PriorityFloor, limit: int) -> bool:
        """Group `limit` changed nodes at most, ahead of the next call; whether there are more."""
        return self._get_states(index, floor).follow_slice(limit)

    def get_ranking(
        self,
        index: NodeSummaryIndex,
        floor: PriorityFloor,
        request: CardRequest,
        policy_name: PolicyName,
        host: HostResources | None,
    ) -> NodeRanking:
        """The ranking of this request under a policy that looks ahead, as the index and the hosts are now."""
        policy = self._policies[policy_name]
        states = self._get_states(index, floor)
        states.follow_index()
        self._refresh_leftovers(policy, states, len(index))
        outlook = self.get_outlook(policy, host)
        key = RankingKey(request, policy_name, floor, outlook.request_host)
        ranking = self._rankings.get(key)
        if ranking is None:
            ranking = self._rankings[key] = NodeRanking(states, request, policy, outlook)
            if len(self._rankings) > MAX_RANKINGS:
                self._rankings.popitem(last=False)
        else:
            self._rankings.move_to_end(key)
        ranking.follow_states()
        return ranking

    def _get_states(self, index: NodeSummaryIndex, floor: PriorityFloor) -> NodeStates:
        states = self._states.get(floor)
        if states is None:
            self.drop_floor(floor)  # rankings of states that were given up follow nothing any more
            states = self._states[floor] = NodeStates(index, self._hosts)
        return states

    def _refresh_leftovers(self, policy: Policy, states: NodeStates, nodes: int) -> None:
        """Count again once one node in so many may be another: all ranks under such a policy change with the counts."""
        if policy.COUNTS_LEFTOVERS and states.moves - self._leftovers_counted_at > nodes / LEFTOVER_LAG:
            self._leftovers_counted_at = states.moves
            self._leftovers = states.count_leftovers()
            for key in [key for key in self._rankings if self._policies[key.policy].COUNTS_LEFTOVERS]:
                del self._rankings[key]
