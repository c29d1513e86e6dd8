"""Asks `vrampack.cards.fit` and the policies about the nodes of a ledger, and caches the verdicts until a node changes.

    ledger --changed nodes--> node summaries --> one table for each card request and policy --> verdicts, best nodes

Soft reservations of other pods lower the rank of their nodes, as if they were held already, and refuse no pod.

All caching of the project's decisions is here. Summaries and tables catch up with the ledger, node by node, when they
are next used; `policies.evaluate` gives the same verdicts without a cache: the oracle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from cachetools import LRUCache

from policies.engine.node_summary_index import NodeSummaryIndex
from policies.engine.reserved_nodes import ReservedCards, ReservedNodes
from policies.engine.verdict_table import FilterOutcome, NodeVerdict, VerdictTable
from policies.evaluate import Evaluation, evaluate_node
from policies.policy import ScoredCards
from policies.registry import POLICIES
from policies.trial_placement import Placement
from policies.tuning import PolicyName, PolicyTuning
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.node import Node
from vrampack.cards.node_summary import find_equivalence_class, is_plain_request, summarize_node
from vrampack.cards.request import CardRequest, PodRequest

CACHED_TABLES = 64
"""Card requests whose tables are kept: a cluster sees tens of sizes, and 64 tables of 5,000 nodes are 40 MB."""


NOTHING_RESERVED: Sequence[ReservedCards] = ()


class LedgerView(Protocol):
    """What the engine needs of a ledger: nodes as they are now, and which of them changed."""

    @property
    def generation(self) -> int:
        """Rises with every change of any node."""
        ...

    def list_nodes_changed_since(self, generation: int) -> Iterable[str] | None:
        """The nodes that changed, came or went after that generation. None: not known any more, take all nodes."""
        ...

    def list_node_names(self) -> Collection[str]: ...

    def get_node(self, name: str) -> Node | None: ...

    def get_node_for_pod(self, name: str, uid: str) -> Node | None:
        """The node as the pod `uid` finds it: what is kept for it is free, what is kept for others is not."""
        ...

    def list_pod_specific_nodes(self, uid: str) -> Collection[str]:
        """The nodes that this pod finds in another state than other pods do."""
        ...


class SoftReservationView(Protocol):
    """Placements that were named to the scheduler and are not bound yet."""

    def list_reserved_for_others(self, uid: str) -> Mapping[str, Sequence[ReservedCards]]:
        """Soft reservations of other pods, by node: the same object until they change."""
        ...

    def get_placement(self, uid: str) -> Placement | None:
        """The soft reservation of the pod itself."""
        ...


class NoSoftReservations:
    """For callers that only need to know what fits."""

    def list_reserved_for_others(self, uid: str) -> Mapping[str, Sequence[ReservedCards]]:  # noqa: ARG002 - of the protocol
        return {}

    def get_placement(self, uid: str) -> Placement | None:  # noqa: ARG002 - of the protocol
        return None


class Engine:
    """Evaluates nodes for requests under one tuning. Same ledger, same request: same answer."""

    def __init__(
        self,
        ledger: LedgerView,
        tuning: PolicyTuning,
        soft_reservations: SoftReservationView | None = None,
    ) -> None:
        self._ledger = ledger
        self._tuning = tuning
        self._soft_reservations = soft_reservations or NoSoftReservations()
        self._summaries = NodeSummaryIndex()
        self._reserved_nodes = ReservedNodes()
        self._summaries_generation = 0
        self._tables: LRUCache[tuple[CardRequest, PolicyName], VerdictTable] = LRUCache(maxsize=CACHED_TABLES)

    def set_tuning(self, tuning: PolicyTuning) -> None:
        """Evaluate under this tuning from now on."""
        self._tuning = tuning
        self._tables.clear()

    def choose_policy(self, pod_request: PodRequest) -> PolicyName:
        """The pod's wish within what the operator allows, else the default."""
        return self._tuning.choose_policy(pod_request.policy)

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

    def can_share_verdicts(self, uid: str) -> bool:
        """Whether every node is to this pod what it is to any other."""
        return not self._ledger.list_pod_specific_nodes(uid)

    def filter_nodes(self, names: Sequence[str], pod_request: PodRequest, uid: str) -> FilterOutcome:
        """Which of these nodes can take the pod now, and why the others cannot."""
        return self._get_table(pod_request, uid, self._ledger.list_pod_specific_nodes(uid)).filter_nodes(names)

    def rank_nodes(
        self, names: Iterable[str], pod_request: PodRequest, uid: str, count: int, avoided: Collection[str] = ()
    ) -> list[str]:
        """The best of these nodes, best first: a total order, ties end in the node name.

        Nodes that have room only where it is softly reserved for others come after the rest, `avoided` ones last of all.
        """
        special = self._ledger.list_pod_specific_nodes(uid)
        table = self._get_table(pod_request, uid, special)
        reserved = self._soft_reservations.list_reserved_for_others(uid)
        candidates = set(names)
        if not reserved and not avoided:
            return [name for _, name in table.rank_nodes(candidates, count)]
        self._reserved_nodes.drop_unreserved_nodes(reserved)
        others = candidates & {*reserved, *avoided}
        candidates.difference_update(others)
        ranked = [(0, score, name) for score, name in table.rank_nodes(candidates, count)]
        for name in others:
            if table.is_fitting(name):
                on_node = reserved.get(name, NOTHING_RESERVED)
                tier, score = self._rank_reserved_node(
                    table, name, on_node, pod_request, uid if name in special else ""
                )
                ranked.append((2 if name in avoided else tier, score, name))
        return [name for _, _, name in sorted(ranked, key=lambda each: (each[0], -each[1], each[2]))[:count]]

    def _rank_reserved_node(
        self, table: VerdictTable, name: str, reserved: Sequence[ReservedCards], pod_request: PodRequest, uid: str
    ) -> tuple[int, float]:
        """0 and a score where the pod fits beside the reservations, 1 where only in place of them.

        `uid` is that of a pod that finds this node in another state than others do: its rank is not cached for them.
        """
        node = self._ledger.get_node_for_pod(name, uid) if uid else self._ledger.get_node(name)
        if node is None or not reserved:
            return 0, table.get_score(name)
        known = table.reserved_ranks.get(name)
        if known is not None and known[0] is node and known[1] is reserved:
            return known[2]
        beside = self._score_with_reservations(node, reserved, pod_request)
        rank = (1, table.get_score(name)) if beside is None else (0, beside)
        if not uid:
            table.reserved_ranks[name] = node, reserved, rank
        return rank

    def _score_with_reservations(
        self, node: Node, reserved: Sequence[ReservedCards], pod_request: PodRequest
    ) -> float | None:
        beside, request = self._reserved_nodes.get_reserved_node(node, reserved), pod_request.card_request
        if not is_plain_request(request):
            evaluation = self._evaluate(beside.node, pod_request)
            return evaluation.score if isinstance(evaluation, ScoredCards) else None
        equivalence_class = find_equivalence_class(beside.summary, request.count, whole=request.whole)
        if equivalence_class.find_obstacle(request) is not None:
            return None
        ((_, score),) = POLICIES[self.choose_policy(pod_request)].score_nodes([(node.name, beside.summary)], request)
        return score

    def _evaluate(self, node: Node | None, pod_request: PodRequest) -> Evaluation:
        return evaluate_node(node, pod_request.card_request, self.choose_policy(pod_request))

    def _get_table(self, pod_request: PodRequest, uid: str, special: Collection[str]) -> VerdictTable:
        """The table of this card request and policy, as the ledger is now and as this pod finds its special nodes."""
        self._refresh_summaries()
        request, policy = pod_request.card_request, self.choose_policy(pod_request)
        table = self._tables.get((request, policy))
        changed = None if table is None else self._ledger.list_nodes_changed_since(table.generation)
        if table is None or changed is None:
            table = self._tables[request, policy] = self._new_table(request, policy)
        else:
            for name in changed:
                self._update_verdict(table, name, request, policy)
        table.generation = self._ledger.generation
        if not special:
            return table
        return table.with_verdicts({name: self._find_pod_verdict(name, pod_request, uid) for name in special})

    def _new_table(self, request: CardRequest, policy: PolicyName) -> VerdictTable:
        score_nodes = POLICIES[policy].score_nodes
        table = VerdictTable(lambda names: score_nodes(self._summaries.list_summaries(names), request))
        if is_plain_request(request):
            for reason, names in self._summaries.group_by_obstacle(request):
                table.put_verdicts(names, reason)
        else:
            for name in self._summaries:
                table.put_verdict(name, self._find_shared_verdict(name, request, policy))
        return table

    def _update_verdict(self, table: VerdictTable, name: str, request: CardRequest, policy: PolicyName) -> None:
        if self._summaries.get_summary(name) is None:
            table.drop_node(name)
        else:
            table.put_verdict(
                name,
                self._summaries.find_obstacle(name, request)
                if is_plain_request(request)
                else self._find_shared_verdict(name, request, policy),
            )

    def _find_shared_verdict(self, name: str, request: CardRequest, policy: PolicyName) -> NodeVerdict:
        return _to_verdict(evaluate_node(self._ledger.get_node(name), request, policy))

    def _find_pod_verdict(self, name: str, pod_request: PodRequest, uid: str) -> NodeVerdict:
        return _to_verdict(self._evaluate(self._ledger.get_node_for_pod(name, uid), pod_request))

    def _refresh_summaries(self) -> None:
        """Summarize again what changed since the last call."""
        generation = self._ledger.generation
        if generation == self._summaries_generation:
            return
        changed = self._ledger.list_nodes_changed_since(self._summaries_generation)
        if changed is None:
            self._summaries.clear()
            changed = self._ledger.list_node_names()
        for name in changed:
            node = self._ledger.get_node(name)
            self._summaries.put_summary(name, None if node is None else summarize_node(node))
        self._summaries_generation = generation


def _to_verdict(evaluation: Evaluation) -> NodeVerdict:
    return evaluation.reason if isinstance(evaluation, Unfit) else evaluation.score
