"""Asks `vrampack.cards.fit` and the policies about the nodes of a ledger, and caches the verdicts until a node changes.

    ledger --changed nodes--> node summaries --> one table for each card request and policy --> verdicts, best nodes

Soft reservations of other pods lower the rank of their nodes, as if they were held already, and refuse no pod.

All caching of verdicts and scores is here. Summaries and tables catch up with the ledger, node by node, when they
are next used; `policies.evaluate` gives the same verdicts without a cache: the oracle.

Users decide by their pods what the caches are asked for, so a new request must be cheap and must not push out what others
use. It is narrowed to what the cluster's hardware can tell apart; summaries answer it; single cards are examined only if
it names them.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from cachetools import LRUCache

from policies.engine.adjusted_policies import AdjustedPolicies
from policies.engine.cluster_summaries import ClusterSummaries
from policies.engine.cluster_view import ClusterView, FloorView, LedgerView, PriorityFloor
from policies.engine.host_rooms import HostRooms
from policies.engine.node_ranking import NodeRanking
from policies.engine.node_rankings import NodeRankings, RankingKey
from policies.engine.reserved_nodes import ReservedCards, ReservedNodes
from policies.engine.soft_reservations import NoSoftReservations, SoftReservationView
from policies.engine.verdict_table import FilterOutcome, NodeVerdict, VerdictTable
from policies.engine.verdict_tables import (
    MAX_SHADOW_VERDICTS,
    NODES_PER_STEP,
    TableKey,
    VerdictTables,
    to_verdict,
)
from policies.evaluate import Evaluation, evaluate_under_policy
from policies.mix.forecast import CardCounts, Forecast
from policies.mix.request_mix import MixedRequest
from policies.outlook import Outlook
from policies.policy import Policy, ScoredCards
from policies.registry import POLICIES
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.host_room import HostResources
from vrampack.cards.node import Node
from vrampack.cards.node_summary import find_equivalence_class, get_request_kind, select_view
from vrampack.cards.request import CardRequest, PodRequest, ProfileChoice
from vrampack.cards.tuned_policy import TunedPolicy

MAX_FLOOR_VIEWS = 4
"""A view has summaries of its own only for nodes with kept cards; the names and groups of 5,000 nodes take 1 MB a view."""
NOTHING_RESERVED: Sequence[ReservedCards] = ()


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
        self._node_rankings = NodeRankings(self._hosts, self._policies)
        self._base_view = ClusterView(ledger)
        self._floor_views: LRUCache[int, FloorView] = LRUCache(maxsize=MAX_FLOOR_VIEWS)
        self._reserved_nodes = ReservedNodes()
        self._tables = VerdictTables(ledger, self._policies, self._node_rankings)

    def set_tuning(self, tuning: PolicyChoice) -> None:
        """Evaluate under this tuning from now on."""
        self._tuning = tuning
        self._policies.clear()
        self._tables.clear()
        self._node_rankings.clear()

    def forget_all(self) -> None:
        """Drop all that follows from the ledger, which is read again when it is next needed."""
        self._base_view.forget_all()
        self._floor_views.clear()
        self._reserved_nodes = ReservedNodes()
        self._tables.clear()
        self._node_rankings.forget_states()

    def set_forecast(self, forecast: Forecast) -> None:
        """Rank by this forecast from now on. It does not affect what fits."""
        for _ in self.adopt_forecast(forecast):
            pass

    def adopt_forecast(self, forecast: Forecast) -> Iterator[None]:
        """The same in short steps; the forecast is in force after the last."""
        yield from self._node_rankings.adopt_forecast(forecast)
        self._tables.drop_forecast()

    def build_shadow(self, tuning: PolicyChoice) -> Engine:
        """An engine over the same nodes, with another tuning and its own tables, for pods from which no card is kept."""
        shadow = Engine(self._ledger, tuning, self._soft_reservations, hosts=self._hosts, policies=self._registry)
        shadow._node_rankings = self._node_rankings.build_shadow(shadow._policies)
        shadow._base_view, shadow._floor_views = self._base_view, self._floor_views
        shadow._tables = VerdictTables(self._ledger, shadow._policies, shadow._node_rankings, MAX_SHADOW_VERDICTS)
        return shadow

    def choose_policy(self, pod_request: PodRequest) -> TunedPolicy:
        """The pod's wish within what the operator allows, else the default."""
        return self._tuning.choose_policy(pod_request.policy, pod_request.profile)

    @property
    def has_bounds(self) -> bool:
        """Whether any pod may be ranked with a bound on cards."""
        return any(policy.card_use_percent is not None for policy in self._tuning.list_policies())

    @property
    def has_policy_that_looks_ahead(self) -> bool:
        return any(self._policies[name].LOOKS_AHEAD for name in self._tuning.list_policies())

    def get_outlook(self, policy: TunedPolicy, host: HostResources | None) -> Outlook:
        """What the policy knows now, for a request that takes `host` of its host."""
        return self._node_rankings.get_outlook(self._policies[policy], host)

    def follow_outlook(self, pod_request: PodRequest, uid: str) -> Outlook:
        """The outlook that ranks nodes for this pod now; counts leftovers again if many nodes have changed."""
        self._get_ranking(pod_request, uid)
        return self.get_outlook(self.choose_policy(pod_request), pod_request.host)

    @property
    def ranks_many_states(self) -> bool:
        """Whether a policy that looks ahead takes long to score all node states for a new request."""
        return self._node_rankings.has_many_states

    @property
    def forecast(self) -> Forecast:
        """The forecast by which policies that look ahead rank."""
        return self._node_rankings.forecast

    def count_cards(self) -> CardCounts:
        """The cards of all nodes, as of the last update."""
        return self._base_view.summaries.hardware.count_cards()

    def build_mixed_request(self, pod_request: PodRequest) -> MixedRequest:
        """The request that the pod counts as in a mix, narrowed to what the hardware can tell apart."""
        return self._base_view.summaries.hardware.build_mixed_request(pod_request, self._hosts)

    def evaluate_node(self, name: str, pod_request: PodRequest, uid: str) -> Evaluation:
        """Where the pod would go on this node, or why it cannot.

        It goes to the cards of its own soft reservation if they still fit; else, if possible, beside those of others.
        """
        node = self._ledger.get_node_for_pod(name, uid)
        if node is None:
            return self._evaluate(node, pod_request)
        own = self._soft_reservations.get_placement(uid)
        if own is not None and own.node_name == name:
            fitting = find_fitting_cards(node, pod_request.card_request)
            cards = () if isinstance(fitting, Unfit) else tuple(card for card in fitting if card.index in own.cards)
            if len(cards) == len(own.cards) == pod_request.card_request.count:
                return ScoredCards(own.score, cards)
        reserved = self._soft_reservations.list_reserved_for_others(uid).get(name)
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
        self._base_view.follow_ledger()
        request = self._base_view.summaries.hardware.narrow_request(pod_request.card_request)
        return VerdictKey(request, floor, self._ledger.get_kept_generation(floor))

    def follow_slice(self, floors: Sequence[int], limit: int) -> bool:
        """Apply at most `limit` node changes ahead of the next call; true when more are left.

        Follows the lowest of these floors, as many as there can be views: their pods will ask next.
        """
        return any(self._follow_floor(floor, limit) for floor in (None, *floors[:MAX_FLOOR_VIEWS]))

    def is_prepared(self, pod_request: PodRequest, uid: str) -> bool:
        """Whether a verb finds the verdicts and scores for this request, except for a few nodes, or can compute them at once."""
        is_quick = pod_request.card_request.rules is None and not self.ranks_many_states
        if is_quick and self.choose_policy(pod_request).card_use_percent is None:
            return True
        key, view = self._find_table_key(pod_request, uid)
        return self._tables.has_fresh_table(key, view) and (
            not self._tables.is_ranked_by_states(key)
            or self._node_rankings.is_prepared(view.index, self._build_ranking_key(key, pod_request), NODES_PER_STEP)
        )

    def prepare_request(self, pod_request: PodRequest, uid: str) -> Iterator[None]:
        """Compute verdicts and scores for a request ahead of the verb that needs them; yields after each step."""
        key, view = self._find_table_key(pod_request, uid)
        for _ in self._prepare_verdicts(key, view, pod_request):
            yield
            if key.floor is not None and self._floor_views.get(key.floor) is not view:
                return  # pods of other floors displaced this view, and its tables with it

    def copy_summaries(self) -> ClusterSummaries:
        """The summaries as of the last update, for a reader in another thread, which follows later changes itself."""
        return self._base_view.summaries.copy_summaries()

    def filter_nodes(self, names: Sequence[str], pod_request: PodRequest, uid: str) -> FilterOutcome:
        """Which of these nodes can take the pod now, and why the others cannot."""
        return self._get_table(pod_request, uid).filter_nodes(names)

    def rank_nodes(
        self, names: Iterable[str], pod_request: PodRequest, uid: str, count: int, avoided: Collection[str] = ()
    ) -> list[str]:
        """The best of these nodes, best first, in a total order: the node name breaks ties.

        Nodes with room only in place of other pods' soft reservations come after the rest, `avoided` ones last of all.
        """
        table = self._get_table(pod_request, uid)
        ranking = self._get_ranking(pod_request, uid) or table
        reserved = self._soft_reservations.list_reserved_for_others(uid)
        candidates = set(names)
        special = self._ledger.list_pod_specific_nodes(uid)
        if not reserved and not avoided and (ranking is table or not special):
            return [name for _, name in ranking.rank_nodes(candidates, count)]
        self._reserved_nodes.drop_unreserved_nodes(reserved)
        table.drop_unreserved_ranks(reserved)
        floor = self._ledger.get_priority_floor(uid)
        others = candidates & {*reserved, *avoided, *(() if ranking is table else special)}
        candidates.difference_update(others)
        ranked = [(0, score, name) for score, name in ranking.rank_nodes(candidates, count)]
        for name in others:
            if table.is_fitting(name):
                node = (
                    self._ledger.get_node_for_pod(name, uid) if name in special else self._ledger.get_node(name, floor)
                )
                on_node = reserved.get(name, NOTHING_RESERVED)
                tier, score = self._rank_reserved_node(table, node, on_node, pod_request, is_shared=name not in special)
                ranked.append((2 if name in avoided else tier, score, name))
        return [name for _, _, name in sorted(ranked, key=lambda each: (each[0], -each[1], each[2]))[:count]]

    def find_best_node(self, candidates: Container[str], pod_request: PodRequest, uid: str) -> str | None:
        """The best candidate that the pod fits, as if nothing were reserved; None if there is none.

        `candidates` is asked best first and only as far as needed, so it may be computed lazily.
        """
        ranking = self._get_ranking(pod_request, uid)
        if ranking is None:
            view = self._get_view(self._ledger.get_priority_floor(uid))
            view.follow_ledger()
            names = [name for name in view.index if name in candidates]
            return next(iter(self.rank_nodes(names, pod_request, uid, 1)), None)
        return next((name for _, name in ranking.rank_nodes(candidates, 1)), None)

    def _rank_reserved_node(
        self,
        table: VerdictTable,
        node: Node | None,
        reserved: Sequence[ReservedCards],
        pod_request: PodRequest,
        *,
        is_shared: bool,
    ) -> tuple[int, float]:
        """A tier and a score: tier 0 if the pod fits beside the reservations, 1 if only in place of them.

        The rank is cached only for a node that looks the same to other pods.
        """
        if node is None:
            return 0, 0.0
        if not reserved:
            return 0, self._score_alone(table, node, pod_request)
        context = self._node_rankings.get_node_context(self.choose_policy(pod_request), node.name, pod_request.host)
        known = table.reserved_ranks.get(node.name)
        if known is not None and known[0] is node and known[1] is reserved and known[2] == context:
            return known[3]
        beside = self._score_with_reservations(node, reserved, pod_request)
        rank = (1, self._score_alone(table, node, pod_request)) if beside is None else (0, beside)
        if is_shared:
            table.reserved_ranks[node.name] = node, reserved, context, rank
        return rank

    def _score_alone(self, table: VerdictTable, node: Node, pod_request: PodRequest) -> float:
        """The score of a node that fits, as if nothing were reserved there. Tables have no scores of policies that look ahead."""
        if not self._policies[self.choose_policy(pod_request)].LOOKS_AHEAD:
            return table.get_score(node.name)
        alone = self._evaluate(node, pod_request)
        return alone.score if isinstance(alone, ScoredCards) else 0.0

    def _score_with_reservations(
        self, node: Node, reserved: Sequence[ReservedCards], pod_request: PodRequest
    ) -> float | None:
        beside, request = self._reserved_nodes.get_reserved_node(node, reserved), pod_request.card_request
        if request.uuids is not None:
            evaluation = self._evaluate(beside.node, pod_request)
            return evaluation.score if isinstance(evaluation, ScoredCards) else None
        if find_equivalence_class(beside.summary, get_request_kind(request)).find_obstacle(request) is not None:
            return None
        summary = select_view(beside.summary, request)
        policy = self._policies[self.choose_policy(pod_request)]
        ((_, score),) = policy.score_nodes(
            [(node.name, summary)], request, self._node_rankings.get_outlook(policy, pod_request.host)
        )
        return score

    def _evaluate(self, node: Node | None, pod_request: PodRequest) -> Evaluation:
        policy = self._policies[self.choose_policy(pod_request)]
        outlook = self._node_rankings.get_outlook(policy, pod_request.host)
        return evaluate_under_policy(node, pod_request.card_request, policy, outlook)

    def _get_ranking(self, pod_request: PodRequest, uid: str) -> NodeRanking | None:
        """The ranking of this request as the ledger is now; None if its table ranks the nodes."""
        name = self.choose_policy(pod_request)
        policy = self._policies[name]
        if not policy.LOOKS_AHEAD or pod_request.card_request.uuids is not None:
            return None
        floor = self._ledger.get_priority_floor(uid)
        view = self._get_view(floor)
        view.follow_ledger()
        key = self._build_key(pod_request, floor, view)
        return self._node_rankings.get_ranking(view.index, self._build_ranking_key(key, pod_request))

    def _get_table(self, pod_request: PodRequest, uid: str) -> VerdictTable:
        """The table of this request, policy and floor, as the ledger is now and as this pod finds its special nodes."""
        floor = self._ledger.get_priority_floor(uid)
        view = self._get_view(floor)
        view.follow_ledger()
        table = self._tables.get_table(self._build_key(pod_request, floor, view), view)
        special = self._ledger.list_pod_specific_nodes(uid)
        if not special:
            return table
        return table.with_verdicts({name: self._find_pod_verdict(name, pod_request, uid) for name in special})

    def _find_table_key(self, pod_request: PodRequest, uid: str) -> tuple[TableKey, ClusterView | FloorView]:
        """The key and the view, as far as the view has followed the ledger."""
        floor = self._ledger.get_priority_floor(uid)
        view = self._get_view(floor)
        return self._build_key(pod_request, floor, view), view

    def _build_key(self, pod_request: PodRequest, floor: PriorityFloor, view: ClusterView | FloorView) -> TableKey:
        request = view.summaries.hardware.narrow_request(pod_request.card_request)
        return TableKey(request, self.choose_policy(pod_request), floor)

    def _build_ranking_key(self, key: TableKey, pod_request: PodRequest) -> RankingKey:
        outlook = self._node_rankings.get_outlook(self._policies[key.policy], pod_request.host)
        return RankingKey(key.request, key.policy, key.floor, outlook.request_host)

    def _prepare_verdicts(
        self, key: TableKey, view: ClusterView | FloorView, pod_request: PodRequest
    ) -> Iterator[None]:
        yield from self._tables.prepare_table(key, view)
        if self._tables.is_ranked_by_states(key):
            ranking_key = self._build_ranking_key(key, pod_request)
            while self._node_rankings.prepare_slice(view.index, ranking_key, NODES_PER_STEP):
                yield
            yield

    def _follow_floor(self, floor: PriorityFloor, limit: int) -> bool:
        view = self._get_view(floor)
        if view.follow_slice(limit):
            return True
        return self.has_policy_that_looks_ahead and self._node_rankings.follow_slice(view.index, floor, limit)

    def _get_view(self, floor: PriorityFloor) -> ClusterView | FloorView:
        if floor is None:
            return self._base_view
        view = self._floor_views.get(floor)
        if view is None:
            view = self._floor_views[floor] = FloorView(self._ledger, floor, self._base_view)
            self._tables.drop_floor(floor)  # tables of an earlier view, which counted other changes
            self._node_rankings.drop_floor(floor)
        return view

    def _find_pod_verdict(self, name: str, pod_request: PodRequest, uid: str) -> NodeVerdict:
        return to_verdict(self._evaluate(self._ledger.get_node_for_pod(name, uid), pod_request))
