"""The tables of all requests in use, each brought up to date when it is next needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from policies.engine.cluster_view import ClusterView, FloorView, LedgerView, PriorityFloor
from policies.engine.node_rankings import NodeRankings
from policies.engine.segmented_cache import SegmentedCache
from policies.engine.verdict_table import NodeVerdict, VerdictTable
from policies.evaluate import Evaluation, evaluate_under_policy
from policies.policy import Policy
from vrampack.cards.fit import Unfit
from vrampack.cards.request import CardRequest
from vrampack.cards.rules import build_new_tenant_request
from vrampack.cards.tuned_policy import TunedPolicy

MAX_CACHED_VERDICTS = 400_000
"""In all tables together: 80 tables of 5,000 nodes, as a cluster has tens of request sizes. At 110 bytes each, 44 MB."""
MAX_SHADOW_VERDICTS = 100_000
"""The same for a shadow's tables: 11 MB."""
TABLE_OVERHEAD = 256
"""The overhead of a table, counted in verdicts, so that the number of tables is bounded in a small cluster, too."""
REBUILD_SHARE = 4
"""A table is rebuilt if more than one in this many nodes has changed: a rebuild takes a fifth of the time per node."""
REBUILD_MIN_NODES = 64
"""Added to the number of nodes, so that a few changes in a small cluster rebuild no table."""
NODES_PER_STEP = 25
"""Nodes in one step of `VerdictTables.prepare_table`: about 2 ms if each node has eight cards with pods on them."""


class TableKey(NamedTuple):
    """Identifies a table."""

    request: CardRequest
    """Narrowed to what the hardware can tell apart."""
    policy: TunedPolicy
    floor: PriorityFloor


class VerdictTables:
    """The tables of one engine. A view passed in must be that of the key's floor."""

    def __init__(
        self,
        ledger: LedgerView,
        policies: Mapping[TunedPolicy, Policy],
        rankings: NodeRankings,
        max_verdicts: int = MAX_CACHED_VERDICTS,
    ) -> None:
        self.kept: SegmentedCache[TableKey, VerdictTable] = SegmentedCache(
            max_verdicts, lambda table: len(table) + TABLE_OVERHEAD
        )
        self._ledger = ledger
        self._policies = policies
        self._rankings = rankings

    def clear(self) -> None:
        self.kept.clear()

    def drop_floor(self, floor: PriorityFloor) -> None:
        """Drop the tables of a floor whose view was replaced: the new one counts other changes."""
        self.kept.drop_entries(lambda key: key.floor == floor)

    def drop_forecast(self) -> None:
        """Drop what holds scores by the previous forecast."""
        self.kept.drop_entries(lambda key: self._policies[key.policy].LOOKS_AHEAD)

    def is_ranked_by_states(self, key: TableKey) -> bool:
        """Whether a `NodeRanking` ranks the nodes instead of the table."""
        return self._policies[key.policy].LOOKS_AHEAD and key.request.uuids is None

    def get_table(self, key: TableKey, view: ClusterView | FloorView) -> VerdictTable:
        """The table that all pods share; the view must have followed the ledger."""
        table = self.kept.get_entry(key)
        names = None if table is None else _list_changes(table, view)
        if table is None or names is None:
            table, names = self._begin_table(key, view)
            self.kept.put_entry(key, table)
        self._update_verdicts(table, names, key, view)
        table.generation = view.index.changes.generation
        return table

    def has_fresh_table(self, key: TableKey, view: ClusterView | FloorView) -> bool:
        """Whether there is a table, and few nodes have changed since it was right."""
        table = self.kept.peek_entry(key)
        if table is None or not (table.is_ranked or self.is_ranked_by_states(key)):
            return False
        changed = view.index.changes.list_changed_since(table.generation)
        return changed is not None and len(changed) <= NODES_PER_STEP

    def prepare_table(self, key: TableKey, view: ClusterView | FloorView) -> Iterator[None]:
        """Compute the table in steps, ahead of the verb that needs it."""
        if self.has_fresh_table(key, view):
            return
        new_tenant_request = build_new_tenant_request(key.request)
        if new_tenant_request is not None:
            yield from self.prepare_table(key._replace(request=new_tenant_request), view)
        while new_tenant_request is None and view.index.group_slice(key.request, NODES_PER_STEP):
            yield
        generation = view.index.changes.generation
        table = self.kept.peek_entry(key)
        names = None if table is None else _list_changes(table, view)
        if table is None or names is None:
            table, names = self._begin_table(key, view)
        yield
        for start in range(0, len(names), NODES_PER_STEP):
            self._update_verdicts(table, names[start : start + NODES_PER_STEP], key, view)
            yield
        table.generation = max(table.generation, generation)
        self.kept.put_entry(key, table)
        if not self.is_ranked_by_states(key):
            yield from self._prepare_ranking(key, view)

    def _prepare_ranking(self, key: TableKey, view: ClusterView | FloorView) -> Iterator[None]:
        while self.get_table(key, view).score_slice(NODES_PER_STEP):
            yield
        self.get_table(key, view).prepare_ranking()
        yield

    def _begin_table(self, key: TableKey, view: ClusterView | FloorView) -> tuple[VerdictTable, Sequence[str]]:
        """A table of all nodes, and the nodes whose verdicts must be replaced in it."""
        request, policy = key.request, self._policies[key.policy]
        outlook = self._rankings.get_outlook(policy, None)
        table = VerdictTable(
            lambda names: policy.score_nodes(view.index.list_summaries(names, request), request, outlook)
        )
        new_tenant_request = build_new_tenant_request(request)
        if new_tenant_request is not None:
            shared_table = self.get_table(key._replace(request=new_tenant_request), view)
            if not self.is_ranked_by_states(key):
                shared_table.prepare_ranking()
            table.copy_verdicts(shared_table)
            return table, view.index.list_nodes_with_tenant(request)
        for reason, names in view.index.group_by_obstacle(request):
            table.put_verdicts(names, reason)
        uuids = request.uuids
        return table, () if uuids is None else list(view.summaries.hardware.list_nodes_with(uuids))

    def _update_verdicts(
        self, table: VerdictTable, names: Iterable[str], key: TableKey, view: ClusterView | FloorView
    ) -> None:
        for name in names:
            self._update_verdict(table, name, key, view)

    def _update_verdict(self, table: VerdictTable, name: str, key: TableKey, view: ClusterView | FloorView) -> None:
        request = key.request
        if view.index.get_summary(name) is None:
            table.drop_node(name)
        elif request.uuids is not None and view.summaries.hardware.has_any_card(name, request.uuids):
            table.put_verdict(name, self._find_verdict(name, key))
        else:
            table.put_verdict(name, view.index.find_obstacle(name, request))

    def _find_verdict(self, name: str, key: TableKey) -> NodeVerdict:
        policy = self._policies[key.policy]
        node, outlook = self._ledger.get_node(name, key.floor), self._rankings.get_outlook(policy, None)
        return to_verdict(evaluate_under_policy(node, key.request, policy, outlook))


def to_verdict(evaluation: Evaluation) -> NodeVerdict:
    return evaluation.reason if isinstance(evaluation, Unfit) else evaluation.score


def _list_changes(table: VerdictTable, view: ClusterView | FloorView) -> Sequence[str] | None:
    """The nodes that changed since the table was right; None if rebuilding it is better."""
    changed = view.index.changes.list_changed_since(table.generation)
    if changed is None or len(changed) * REBUILD_SHARE > len(view.index) + REBUILD_MIN_NODES:
        return None
    return changed
