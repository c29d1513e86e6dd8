"""Asks `vrampack.cards.fit` and the policies about the nodes of a ledger, and follows the ledger's changes.

    ledger --changed nodes--> shapes --> fit classes, for each kind of request --> verdicts
                                 '-----> states, with what hosts have left --policy, for each request--> best nodes
    soft reservations --filled nodes------'

Soft reservations of other pods lower the rank of their nodes, as if they were held already, and refuse no pod.

All that is kept between calls is here, and is brought up to date when it is next used, node by node; `policies.evaluate`
gives the same verdicts without it: the oracle. Users decide by their pods what is asked for, so nothing is kept for a
request and a node: a request is narrowed to what the cluster's hardware can tell apart, classes and states answer it, and
single cards are examined only if it names them.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from sys import maxsize
from typing import NamedTuple, Protocol

from cachetools import LRUCache

from policies.adjusted_policy import AdjustedPolicies
from policies.engine.cluster_shapes import ClusterShapes, FloorFollower, LedgerFollower, ShapesByName
from policies.engine.filter_outcome import FilterOutcome, NearestNode, filter_names, find_nearest_node, judge_node
from policies.engine.fit_index import FitIndexes
from policies.engine.following import NodeFollower
from policies.engine.host_rooms import HostRooms
from policies.engine.ledger_view import LedgerView, PriorityFloor
from policies.engine.node_ranking import NodeRanking
from policies.engine.node_rankings import MANY_STATES, NodeRankings, RankingKey, SeenCluster
from policies.engine.soft_reservations import NoSoftReservations, ReservedNodes, SoftReservationView
from policies.evaluate import Evaluation, evaluate_under_policy
from policies.mix.forecast import CardCounts, Forecast
from policies.mix.request_mix import MixedRequest
from policies.outlook import Outlook
from policies.policy import Policy, ScoredCards
from policies.registry import POLICIES
from policies.trial_placement import HeldCards
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.host_room import HostResources
from vrampack.cards.node import Node
from vrampack.cards.request import CardRequest, PodRequest, ProfileChoice
from vrampack.cards.shape import FitClass, Shape
from vrampack.cards.tuned_policy import TunedPolicy

MAX_FLOORS = 64
"""For how many priorities of nominated pods the shapes of the nodes with kept cards are known."""
NODES_PER_STEP = 25
"""Nodes in one step of `prepare_request`: about 2 ms if each node has eight cards with pods on them."""
STATES_PER_STEP = 100
"""States in one: as long, if each is scored for several cards."""


class VerdictKey(NamedTuple):
    """What decides all verdicts for a pod while no node gains capacity or changes its cards."""

    request: CardRequest
    floor: PriorityFloor
    kept_generation: int


class PolicyChoice(Protocol):
    """Which policy decides for a pod."""

    def choose_policy(self, wish: str | None, profile: ProfileChoice | None = None) -> TunedPolicy: ...

    def list_policies(self) -> Collection[TunedPolicy]:
        """All policies that `choose_policy` may return."""
        ...


class Engine:
    """Evaluates nodes for requests under one tuning. The same ledger and request give the same answer."""

    def __init__(
        self,
        ledger: LedgerView,
        tuning: PolicyChoice,
        soft_reservations: SoftReservationView | None = None,
        *,
        hosts: HostRooms | None = None,
        policies: Mapping[str, Policy] = POLICIES,
    ) -> None:
        self._ledger = ledger
        self._tuning = tuning
        self._soft_reservations = soft_reservations or NoSoftReservations()
        self._hosts = hosts or HostRooms()
        self._registry = policies
        self._policies = AdjustedPolicies(policies)
        self._seen = SeenCluster(self._hosts)
        self._rankings = NodeRankings(self._seen, self._policies)
        self.forget_all()

    def set_tuning(self, tuning: PolicyChoice) -> None:
        """Evaluate under this tuning from now on."""
        self._tuning = tuning
        self._policies.clear()
        self._rankings.clear()

    def forget_all(self) -> None:
        """Drop all that follows from the ledger, which is read again when it is next needed."""
        self._base = LedgerFollower(self._ledger)
        self._floors: LRUCache[int, FloorFollower] = LRUCache(MAX_FLOORS)
        self._fits = FitIndexes(self._cluster)
        self._reserved_nodes = ReservedNodes(self._ledger, self._cluster, self._soft_reservations)
        self._rankings.clear()
        self._seen.follow(self._cluster, self._reserved_nodes.filled)

    def set_forecast(self, forecast: Forecast) -> None:
        """Rank by this forecast from now on. It does not affect what fits."""
        for _ in self.adopt_forecast(forecast):
            pass

    def adopt_forecast(self, forecast: Forecast) -> Iterator[None]:
        """The same in short steps; the forecast is in force after the last."""
        yield from self._rankings.adopt_forecast(forecast)

    def build_shadow(self, tuning: PolicyChoice) -> Engine:
        """An engine over the same nodes, with another tuning and its own rankings, for pods from which no card is kept."""
        shadow = Engine(self._ledger, tuning, self._soft_reservations, hosts=self._hosts, policies=self._registry)
        shadow._base, shadow._floors, shadow._fits, shadow._seen = self._base, self._floors, self._fits, self._seen
        shadow._rankings = NodeRankings(self._seen, shadow._policies)
        shadow._reserved_nodes = self._reserved_nodes
        return shadow

    def choose_policy(self, pod_request: PodRequest) -> TunedPolicy:
        """The pod's wish within what the operator allows, else the default."""
        return self._tuning.choose_policy(pod_request.policy, pod_request.profile)

    @property
    def has_policy_that_looks_ahead(self) -> bool:
        return any(self._policies[name].TRAITS.looks_ahead for name in self._tuning.list_policies())

    def get_outlook(self, policy: TunedPolicy, host: HostResources | None) -> Outlook:
        """What the policy knows now, for a request that takes `host` of its host."""
        return self._rankings.get_outlook(self._policies[policy], host)

    def follow_outlook(self, pod_request: PodRequest) -> Outlook:
        """The outlook that ranks nodes for this pod now; counts leftovers again if many nodes have changed."""
        self._base.follow()
        return self._get_ranking(self._narrow(pod_request.card_request), pod_request).outlook

    @property
    def ranks_many_states(self) -> bool:
        """Whether it takes long to score all node states for a new request."""
        return len(self._seen.states) > MANY_STATES

    def count_cards(self) -> CardCounts:
        """The cards of all nodes, as of the last update."""
        return self._cluster.hardware.count_cards()

    def build_mixed_request(self, pod_request: PodRequest) -> MixedRequest:
        """How a mix of requests counts the pod: narrowed to what the hardware can tell apart."""
        return self._cluster.hardware.build_mixed_request(pod_request, self._hosts)

    def copy_cluster(self) -> ClusterShapes:
        """The shapes as of the last update, for a reader in another thread, which follows later changes itself."""
        return self._cluster.copy()

    def evaluate_node(self, name: str, pod_request: PodRequest, uid: str) -> Evaluation:
        """Where the pod would go on this node, or why it cannot.

        It goes to the cards of its own soft reservation if they still fit; else, if possible, beside those of others.
        """
        node = self._ledger.get_node_for_pod(name, uid)
        if node is None:
            return self._evaluate(node, pod_request)
        own = next((each for each in self._soft_reservations.list_placements(uid) if each.node_name == name), None)
        if own is not None:
            fitting = find_fitting_cards(node, pod_request.card_request)
            cards = () if isinstance(fitting, Unfit) else tuple(card for card in fitting if card.index in own.cards)
            if len(cards) == len(own.cards) == pod_request.card_request.count:
                return ScoredCards(own.score, cards)
        reserved = self._soft_reservations.list_reserved_cards(name, uid)
        if reserved:
            beside = self._evaluate(self._reserved_nodes.get_reserved_node(node, reserved).node, pod_request)
            if isinstance(beside, ScoredCards):
                return beside
        return self._evaluate(node, pod_request)

    def find_verdict_key(self, pod_request: PodRequest, uid: str) -> VerdictKey | None:
        """The pod's key: pods with equal keys get equal verdicts. None: some node looks different to this pod alone."""
        if self._ledger.list_pod_specific_nodes(uid):
            return None
        floor = self._ledger.get_priority_floor(uid)
        self._base.follow()
        return VerdictKey(self._narrow(pod_request.card_request), floor, self._ledger.get_kept_generation(floor))

    def follow_slice(self, floors: Sequence[int], limit: int) -> bool:
        """Apply at most `limit` node changes ahead of the next call; true when more are left.

        Follows these floors, as many as are kept: their pods will ask next.
        """
        return (
            self._base.follow_slice(limit)
            or any(self._get_floor(floor).follow_slice(limit) for floor in floors[:MAX_FLOORS])
            or self._reserved_nodes.follow_slice(limit)
            or self._seen.states.follow_slice(limit)
        )

    def follow_nodes(self) -> None:
        """Apply all node changes."""
        self.follow_slice((), maxsize)

    def is_prepared(self, pod_request: PodRequest, uid: str) -> bool:
        """Whether a verb finds classes and scores for this request, except for a few nodes, or can compute them at once."""
        request = pod_request.card_request
        is_slow = (
            request.rules is not None
            or request.payment is not None
            or bool(request.amounts)
            or self._cluster.hardware.counts_instances
        )
        if not is_slow and not self.ranks_many_states:
            return True
        self._base.follow()
        return not any(each.has_more_changes_than(step) for each, step in self._list_followers(pod_request, uid))

    def prepare_request(self, pod_request: PodRequest, uid: str) -> Iterator[None]:
        """Compute classes and scores for a request ahead of the verb that needs them; yields after each step."""
        self._base.follow()
        for follower, step in self._list_followers(pod_request, uid):
            while follower.follow_slice(step):
                yield
            yield

    def filter_nodes(self, names: Sequence[str], pod_request: PodRequest, uid: str) -> FilterOutcome:
        """Which of these nodes can take the pod now, and why the others cannot."""
        request, classes = self._find_classes(pod_request, uid)
        return filter_names(names, classes, request.units)

    def find_nearest_node(self, names: Iterable[str], pod_request: PodRequest, uid: str) -> NearestNode | None:
        """Which of these nodes comes nearest to taking the pod; None if one takes it now."""
        request, classes = self._find_classes(pod_request, uid)
        return find_nearest_node(names, classes, request.units)

    def may_fit_when_empty(self, pod_request: PodRequest) -> bool:
        """Whether some node of the cluster would take the pod if it were empty and healthy; false if the pod names cards."""
        self._base.follow()
        request = self._narrow(pod_request.card_request)
        classes = set(self._fits.get_classes(request).values())
        reasons = [each.find_obstacle(request.units) for each in classes]
        return any(reason is None or not reason.is_unresolvable for reason in reasons)

    def rank_nodes(
        self, candidates: Container[str], pod_request: PodRequest, uid: str, count: int, avoided: Collection[str] = ()
    ) -> list[str]:
        """The best of these nodes, best first, in a total order: the node name breaks ties.

        `candidates` is asked best first and only as far as needed, so it may be computed lazily.
        Nodes with room only in place of other pods' soft reservations come after the rest, `avoided` ones last of all.
        """
        found = self._find_special_nodes(pod_request, uid)
        special = set(found.nodes)
        if found.ranking is not None:
            own = (each.node_name for each in self._soft_reservations.list_placements(uid))
            special |= {*found.shapes, *avoided, *own}
        single = {name for name in special if name in candidates}
        ranked: list[tuple[int, float, str]] = []
        for name in single:
            reserved = self._soft_reservations.list_reserved_cards(name, uid)
            tier, score = self._rank_single_node(name, found, reserved, pod_request)
            if score is not None:
                ranked.append((2 if name in avoided else tier, -score, name))
        if found.ranking is not None:
            best = found.ranking.rank_nodes(candidates, count, single)
            ranked += [(0, -score, name) for score, name in best]
            if len(best) < count:
                filled = self._reserved_nodes.filled.shapes.keys() - single - {name for _, name in best}
                alone = [
                    (name, self._rank_single_node(name, found, (), pod_request)[1])
                    for name in filled
                    if name in candidates
                ]
                ranked += [(1, -score, name) for name, score in alone if score is not None]
        return [name for _, _, name in sorted(ranked)[:count]]

    @property
    def _cluster(self) -> ClusterShapes:
        return self._base.cluster

    def _find_classes(self, pod_request: PodRequest, uid: str) -> tuple[CardRequest, Mapping[str, FitClass]]:
        """The narrowed request, and the class of every node for it as the pod finds it now."""
        floor = self._ledger.get_priority_floor(uid)
        self._base.follow()
        request, kept = self._narrow(pod_request.card_request), self._find_kept(floor)
        special = self._get_special_nodes(request, floor, uid)
        classes = self._fits.get_classes(request, kept)
        if special:
            classes = {**classes, **{name: judge_node(node, request) for name, node in special.items()}}
        return request, classes

    def _narrow(self, request: CardRequest) -> CardRequest:
        return self._cluster.hardware.narrow_request(request)

    def _get_floor(self, floor: int) -> FloorFollower:
        follower = self._floors.get(floor)
        if follower is None:
            follower = self._floors[floor] = FloorFollower(self._ledger, floor, self._cluster)
        return follower

    def _find_kept(self, floor: PriorityFloor) -> ShapesByName | None:
        """The shapes of the nodes with cards that are kept from pods of this floor, as the ledger is now."""
        if floor is None:
            return None
        follower = self._get_floor(floor)
        follower.follow()
        return follower.kept

    def _list_followers(self, pod_request: PodRequest, uid: str) -> Iterator[tuple[NodeFollower | NodeRanking, int]]:
        """What has to follow the shapes before the request can be answered, and how far in one step; each needs the one before it."""
        request = self._narrow(pod_request.card_request)
        for index in self._fits.list_indexes(request, self._find_kept(self._ledger.get_priority_floor(uid))):
            yield index, NODES_PER_STEP
        if request.uuids is None:
            yield self._reserved_nodes, NODES_PER_STEP
            yield self._seen.states, NODES_PER_STEP
            key, followed = self._build_ranking_key(request, pod_request), None
            while (
                ranking := self._rankings.find_ranking(key)
            ) is not followed:  # a forecast may have replaced it meanwhile
                yield ranking, STATES_PER_STEP
                followed = ranking

    def _find_special_nodes(self, pod_request: PodRequest, uid: str) -> _SpecialNodes:
        floor = self._ledger.get_priority_floor(uid)
        self._base.follow()
        request, kept = self._narrow(pod_request.card_request), self._find_kept(floor)
        nodes = self._get_special_nodes(request, floor, uid)
        if request.uuids is not None:
            return _SpecialNodes(floor, None, nodes, {})
        shapes: dict[str, Shape | None] = {} if kept is None else dict(kept.shapes)
        find_shape = self._cluster.known_shapes.find_shape
        shapes.update((name, None if node is None else find_shape(node)) for name, node in nodes.items())
        return _SpecialNodes(floor, self._get_ranking(request, pod_request), nodes, shapes)

    def _get_special_nodes(self, request: CardRequest, floor: PriorityFloor, uid: str) -> dict[str, Node | None]:
        """The nodes that look different to this pod alone, and those with cards that it names."""
        nodes = {name: self._ledger.get_node_for_pod(name, uid) for name in self._ledger.list_pod_specific_nodes(uid)}
        named = self._cluster.hardware.list_nodes_with(request.uuids or ()) - nodes.keys()
        return nodes | {name: self._ledger.get_node(name, floor) for name in named}

    def _rank_single_node(
        self, name: str, found: _SpecialNodes, reserved: Sequence[HeldCards], pod_request: PodRequest
    ) -> tuple[int, float | None]:
        """A tier and a score, None if the pod does not fit: tier 1 if it fits only in place of the reservations."""
        host, node = self._hosts.rooms.get(name), found.nodes.get(name)

        def score(shape: Shape | None, on: Node | None) -> float | None:
            if found.ranking is not None:
                return None if shape is None else found.ranking.score_shape(shape, host)
            evaluation = self._evaluate(on, pod_request)
            return evaluation.score if isinstance(evaluation, ScoredCards) else None

        shape = found.shapes[name] if name in found.shapes else self._cluster.shapes.get(name)
        alone = score(shape, node)
        if alone is None or not reserved:
            return 0, alone
        node = node or self._ledger.get_node(name, found.floor)
        if node is None:
            return 0, None
        filled = self._reserved_nodes.get_reserved_node(node, reserved)
        beside = score(filled.shape, filled.node)
        return (1, alone) if beside is None else (0, beside)

    def _evaluate(self, node: Node | None, pod_request: PodRequest) -> Evaluation:
        policy = self._policies[self.choose_policy(pod_request)]
        outlook = self._rankings.get_outlook(policy, pod_request.host)
        shape = None if node is None else self._cluster.get_shape(node)
        return evaluate_under_policy(node, pod_request.card_request, policy, outlook, shape)

    def _get_ranking(self, request: CardRequest, pod_request: PodRequest) -> NodeRanking:
        """The ranking of this narrowed request; the shapes must have followed the ledger."""
        self._reserved_nodes.follow()
        self._seen.states.follow()
        return self._rankings.find_ranking(self._build_ranking_key(request, pod_request))

    def _build_ranking_key(self, request: CardRequest, pod_request: PodRequest) -> RankingKey:
        name = self.choose_policy(pod_request)
        outlook = self._rankings.get_outlook(self._policies[name], pod_request.host)
        return RankingKey(request, name, outlook.request_host)


class _SpecialNodes(NamedTuple):
    """What a pod finds otherwise than a ranking shows it, at one moment."""

    floor: PriorityFloor
    ranking: NodeRanking | None
    """None if the request names cards: then `nodes` are all that have any of them."""
    nodes: Mapping[str, Node | None]
    """The nodes that look different to this pod alone."""
    shapes: Mapping[str, Shape | None]
    """The shapes of these, and of the nodes with cards that are kept from pods of its floor."""
