"""The rankings of all requests in use: of the outlook, the states of all nodes, and what a policy makes of both."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from policies.engine.cluster_shapes import ShapesByName
from policies.engine.host_rooms import HostRooms
from policies.engine.node_ranking import NodeRanking
from policies.engine.node_states import NodeStates
from policies.mix.forecast import Forecast
from policies.outlook import NO_OUTLOOK, Outlook
from policies.policy import Policy
from vrampack.cards.host_room import HostResources
from vrampack.cards.request import CardRequest
from vrampack.cards.shape import Shape
from vrampack.cards.tuned_policy import TunedPolicy

MAX_RANKINGS = 256
"""The most rankings, one for each card request and amount of CPU and memory. A ranking takes 0.1 KB a state."""
STATES_PER_SLICE = 200
"""States scored between two steps: 2 to 4 ms."""
MANY_STATES = 200
"""Scoring more states than this for a new request for several cards takes over 5 ms."""
LEFTOVER_LAG = 64
"""Leftovers are counted again when one node in this many has changed."""


class RankingKey(NamedTuple):
    """Identifies a ranking. CPU and memory are in it, but in no verdict."""

    request: CardRequest
    """Narrowed to what the hardware can tell apart."""
    policy: TunedPolicy
    host: HostResources | None


class SeenCluster:
    """The input of all rankings of one cluster."""

    def __init__(self, hosts: HostRooms) -> None:
        self.hosts = hosts
        self.forecast = NO_OUTLOOK.forecast
        self.follow(ShapesByName(), ShapesByName())

    def follow(self, source: ShapesByName, filled: ShapesByName) -> None:
        """Group these nodes from now on, by their shapes in `filled` if they have one there; the forecast stays."""
        self.source = source
        self.states = NodeStates(source, filled, self.hosts)
        self.leftovers: Mapping[tuple[int, int], int] = {}
        self.leftovers_counted_at = 0


class NodeRankings:
    """The rankings of one engine."""

    def __init__(self, seen: SeenCluster, policies: Mapping[TunedPolicy, Policy]) -> None:
        self.seen = seen
        self._policies = policies
        self._rankings: OrderedDict[RankingKey, NodeRanking] = OrderedDict()
        """The least recently used first. Not an `LRUCache`: keys take long to hash, and it hashes them five times."""

    def adopt_forecast(self, forecast: Forecast) -> Iterator[None]:
        """Build all rankings for this forecast in short steps, then rank by it; until then the previous forecast holds."""
        renewed: dict[RankingKey, NodeRanking] = {}
        for key, ranking in list(self._rankings.items()):
            policy = self._policies[key.policy]
            if not policy.TRAITS.looks_ahead:
                renewed[key] = ranking
                continue
            outlook = ranking.outlook._replace(forecast=forecast)
            renewed[key] = NodeRanking(ranking.states, key.request, policy, outlook)
            while renewed[key].follow_slice(STATES_PER_SLICE):
                yield
            yield
        self.seen.forecast = forecast
        self._rankings = OrderedDict((key, each) for key, each in renewed.items() if self._is_current(key, each))

    def clear(self) -> None:
        self._rankings.clear()

    def get_outlook(self, policy: Policy, host: HostResources | None) -> Outlook:
        """What the policy may know for a request that takes `host` of its host."""
        if not policy.TRAITS.looks_ahead:
            return NO_OUTLOOK
        request_host = None if host is None or not policy.TRAITS.reads_hosts else self.seen.hosts.round_up(host)
        return Outlook(self.seen.forecast, self.seen.hosts.rooms, request_host, self.seen.leftovers)

    def find_ranking(self, key: RankingKey) -> NodeRanking:
        """The ranking, with states that have followed the nodes but may not be scored yet."""
        policy = self._policies[key.policy]
        self._refresh_leftovers(policy)
        ranking = self._rankings.get(key)
        if ranking is None or not self._is_current(key, ranking):
            outlook = self.get_outlook(policy, None)._replace(request_host=key.host)
            ranking = self._rankings[key] = NodeRanking(self.seen.states, key.request, policy, outlook)
        self._rankings.move_to_end(key)
        if len(self._rankings) > MAX_RANKINGS:
            self._rankings.popitem(last=False)
        return ranking

    def _is_current(self, key: RankingKey, ranking: NodeRanking) -> bool:
        """Whether it uses the current states and outlook: rankings of dropped states no longer follow anything."""
        outlook, seen, policy = ranking.outlook, self.seen, self._policies[key.policy]
        return (
            ranking.states is seen.states
            and (outlook.forecast is seen.forecast or not policy.TRAITS.looks_ahead)
            and (outlook.leftovers is seen.leftovers or not policy.TRAITS.counts_leftovers)
        )

    def _refresh_leftovers(self, policy: Policy) -> None:
        """Count again once enough nodes may have changed: all ranks under such a policy change with the counts."""
        seen = self.seen
        changes, shapes = seen.source.changes.generation, seen.source.shapes
        if policy.TRAITS.counts_leftovers and changes - seen.leftovers_counted_at > len(shapes) / LEFTOVER_LAG:
            seen.leftovers_counted_at = changes
            seen.leftovers = _count_leftovers(shapes.values())


def _count_leftovers(shapes: Iterable[Shape]) -> Mapping[tuple[int, int], int]:
    """How many used cards there are, by their units and free units; takes a pass over all nodes."""
    leftovers: Counter[tuple[int, int]] = Counter()
    for shape, count in Counter(shapes).items():
        for _, units, used in shape.open_cards:
            if 0 < used < units:
                leftovers[units, units - used] += count
    return leftovers
