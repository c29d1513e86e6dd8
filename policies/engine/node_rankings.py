"""What policies that look ahead need from the engine: the outlook, node states, and a ranking for each request."""

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
from vrampack.cards.host_room import HostResources
from vrampack.cards.request import CardRequest
from vrampack.cards.tuned_policy import TunedPolicy

MAX_RANKINGS = 256
"""The most rankings, one for each card request and amount of CPU and memory. A ranking takes 0.1 KB a state."""
MAX_FLOORS = 5
"""As many as there are views of the cluster, including the one without a floor."""
STATES_PER_SLICE = 200
"""States scored between two steps: 2 to 4 ms."""
MANY_STATES = 200
"""Scoring more states than this for a new request for several cards takes over 5 ms."""
LEFTOVER_LAG = 64
"""Leftovers are counted again when one node in this many has changed."""


class RankingKey(NamedTuple):
    """Identifies a ranking. CPU and memory are in it, but in no key of verdicts."""

    request: CardRequest
    """Narrowed to what the hardware can tell apart."""
    policy: TunedPolicy
    floor: PriorityFloor
    host: HostResources | None


class _SeenCluster:
    """The input of all rankings of one cluster."""

    def __init__(self) -> None:
        self.forecast = NO_OUTLOOK.forecast
        self.states: LRUCache[PriorityFloor, NodeStates] = LRUCache(MAX_FLOORS)
        self.leftovers: Mapping[tuple[int, int], int] = {}
        self.leftovers_counted_at = 0


class NodeRankings:
    """The rankings for all views of one engine. It stores nothing until a policy that looks ahead is asked."""

    def __init__(
        self, hosts: HostRooms, policies: Mapping[TunedPolicy, Policy], seen: _SeenCluster | None = None
    ) -> None:
        self._hosts = hosts
        self._policies = policies
        self._seen = seen or _SeenCluster()
        self._rankings: OrderedDict[RankingKey, NodeRanking] = OrderedDict()
        """The least recently used first. Not an `LRUCache`: keys take long to hash, and it hashes them five times."""

    @property
    def forecast(self) -> Forecast:
        return self._seen.forecast

    @property
    def has_many_states(self) -> bool:
        return any(len(states) > MANY_STATES for states in self._seen.states.values())

    def build_shadow(self, policies: Mapping[TunedPolicy, Policy]) -> NodeRankings:
        """Separate rankings by the same states, forecast and leftovers."""
        return NodeRankings(self._hosts, policies, self._seen)

    def adopt_forecast(self, forecast: Forecast) -> Iterator[None]:
        """Build all rankings for this forecast in short steps, then rank by it; until then the previous forecast holds."""
        renewed: dict[RankingKey, NodeRanking] = {}
        for key, ranking in list(self._rankings.items()):
            outlook = ranking.outlook._replace(forecast=forecast)
            renewed[key] = NodeRanking(ranking.states, key.request, self._policies[key.policy], outlook)
            while renewed[key].follow_slice(STATES_PER_SLICE):
                yield
            yield
        self._seen.forecast = forecast
        self._rankings = OrderedDict((key, each) for key, each in renewed.items() if self._is_current(key, each))

    def clear(self) -> None:
        self._rankings.clear()

    def forget_states(self) -> None:
        """Group all nodes again at the next call; the forecast stays."""
        self._rankings.clear()
        self._seen.states.clear()
        self._seen.leftovers, self._seen.leftovers_counted_at = {}, 0

    def drop_floor(self, floor: PriorityFloor) -> None:
        """Drop the rankings of a floor whose view was replaced."""
        self._seen.states.pop(floor, None)
        for key in [key for key in self._rankings if key.floor == floor]:
            del self._rankings[key]

    def get_outlook(self, policy: Policy, host: HostResources | None) -> Outlook:
        """What the policy may know for a request that takes `host` of its host."""
        if not policy.LOOKS_AHEAD:
            return NO_OUTLOOK
        request_host = None if host is None or not policy.READS_HOSTS else self._hosts.round_up(host)
        return Outlook(self._seen.forecast, self._hosts.rooms, request_host, self._seen.leftovers)

    def get_node_context(self, tuned: TunedPolicy, name: str, host: HostResources | None) -> object:
        """What else a score on this node depends on: equal contexts give equal scores while the forecast is the same."""
        policy = self._policies[tuned]
        if not policy.LOOKS_AHEAD:
            return None
        request_host = self.get_outlook(policy, host).request_host
        counted_at = self._seen.leftovers_counted_at if policy.COUNTS_LEFTOVERS else 0
        return self._hosts.rooms.get(name), request_host, counted_at

    def follow_slice(self, index: NodeSummaryIndex, floor: PriorityFloor, limit: int) -> bool:
        """Group at most `limit` changed nodes ahead of the next call; true when more are left."""
        return self._get_states(index, floor).follow_slice(limit)

    def is_prepared(self, index: NodeSummaryIndex, key: RankingKey, limit: int) -> bool:
        """Whether `get_ranking` has at most this many states to score."""
        ranking = self._rankings.get(key)
        states = self._get_states(index, key.floor)
        if ranking is None or not self._is_current(key, ranking):
            return False
        return not states.has_more_changes_than(limit) and not ranking.has_more_states_than(limit)

    def prepare_slice(self, index: NodeSummaryIndex, key: RankingKey, limit: int) -> bool:
        """Group up to `limit` nodes, then score up to `limit` states, ahead of `get_ranking`; true when more are left."""
        if self._get_states(index, key.floor).follow_slice(limit):
            return True
        return self._find_ranking(index, key).follow_slice(limit)

    def get_ranking(self, index: NodeSummaryIndex, key: RankingKey) -> NodeRanking:
        """The ranking of this request under a policy that looks ahead, as the index and the hosts are now."""
        self._get_states(index, key.floor).follow_index()
        ranking = self._find_ranking(index, key)
        ranking.follow_states()
        return ranking

    def _find_ranking(self, index: NodeSummaryIndex, key: RankingKey) -> NodeRanking:
        """The ranking, with states that have followed the index but may not be scored yet."""
        policy, states = self._policies[key.policy], self._get_states(index, key.floor)
        self._refresh_leftovers(policy, states, len(index))
        ranking = self._rankings.get(key)
        if ranking is None or not self._is_current(key, ranking):
            outlook = Outlook(self._seen.forecast, self._hosts.rooms, key.host, self._seen.leftovers)
            ranking = self._rankings[key] = NodeRanking(states, key.request, policy, outlook)
        self._rankings.move_to_end(key)
        if len(self._rankings) > MAX_RANKINGS:
            self._rankings.popitem(last=False)
        return ranking

    def _is_current(self, key: RankingKey, ranking: NodeRanking) -> bool:
        """Whether it uses the current states and outlook: rankings of dropped states no longer follow anything."""
        outlook, seen = ranking.outlook, self._seen
        return (
            outlook.forecast is seen.forecast
            and ranking.states is seen.states.get(key.floor)
            and (outlook.leftovers is seen.leftovers or not self._policies[key.policy].COUNTS_LEFTOVERS)
        )

    def _get_states(self, index: NodeSummaryIndex, floor: PriorityFloor) -> NodeStates:
        states = self._seen.states.get(floor)
        if states is None:
            states = self._seen.states[floor] = NodeStates(index, self._hosts)
        return states

    def _refresh_leftovers(self, policy: Policy, states: NodeStates, nodes: int) -> None:
        """Count again once enough nodes may have changed: all ranks under such a policy change with the counts."""
        if policy.COUNTS_LEFTOVERS and states.moves - self._seen.leftovers_counted_at > nodes / LEFTOVER_LAG:
            self._seen.leftovers_counted_at = states.moves
            self._seen.leftovers = states.count_leftovers()
