"""Asks `cards.fit` and the policies about the nodes of a ledger, and remembers what they said while nothing changes.

    ledger --changed nodes--> outlines --> one table for each shape of request and policy --> verdicts, best

All caching of the project's decisions is here. Outlines and tables follow the ledger when they are next asked, node by
node; `policies.judging` is the same without memory, the oracle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from cachetools import LRUCache

from cards.fit import Unfit
from cards.node import Node
from cards.outline import Outline, is_plain, outline, outline_reason, reasons
from cards.request import Ask, Request
from policies.judging import SCORES, Judgement, judge
from policies.policy import Demand
from policies.tables import Sorted, Table, Verdict
from policies.tuning import PolicyName, PolicyTuning

SHAPES_KEPT = 64
"""Request shapes whose tables are kept: a cluster asks for tens of sizes, and 64 tables of 5,000 nodes are 40 MB."""


class LedgerView(Protocol):
    """What the engine needs of a ledger: nodes as they are now, and which have changed."""

    @property
    def generation(self) -> int:
        """Rises with every change of any node."""
        ...

    def changed_since(self, generation: int) -> Iterable[str] | None:
        """The nodes that changed, came or went after that generation. None: that is forgotten, look at all."""
        ...

    def node_names(self) -> Collection[str]: ...

    def node(self, name: str) -> Node | None: ...

    def node_for(self, name: str, uid: str) -> Node | None:
        """The node as the pod `uid` finds it: a place that is reserved for it there is free for it."""
        ...

    def reserved_nodes(self, uid: str) -> Collection[str]:
        """Where the pod has a place reserved: those nodes are others to it than to everybody else."""
        ...


class Engine:
    """Judges nodes for requests under one tuning. Same ledger, same request: same answer."""

    def __init__(self, ledger: LedgerView, tuning: PolicyTuning, demand: Demand | None = None) -> None:
        self._ledger = ledger
        self._tuning = tuning
        self._demand = demand or Demand()
        self._outlines: dict[str, Outline] = {}
        self._outlined_at = 0
        self._tables: LRUCache[tuple[Request, PolicyName], Table] = LRUCache(maxsize=SHAPES_KEPT)

    def policy_for(self, ask: Ask) -> PolicyName:
        """The pod's wish within what the operator allows, else the default."""
        return self._tuning.chosen(ask.policy)

    def judge(self, name: str, ask: Ask, uid: str) -> Judgement:
        """Where the pod would go on this node, or why it cannot."""
        return judge(self._ledger.node_for(name, uid), ask.request, self.policy_for(ask), self._demand)

    def verdicts(self, names: Sequence[str], ask: Ask, uid: str) -> Sorted:
        """Which of these nodes can take the pod now, and why the others cannot."""
        return self._table(ask, uid).sort(names)

    def best(self, names: Sequence[str], ask: Ask, uid: str, count: int) -> list[str]:
        """The best of these nodes, best first: a total order, ties end in the node name."""
        return self._table(ask, uid).best(names, count)

    def _table(self, ask: Ask, uid: str) -> Table:
        """The table of this shape and policy, as the ledger is now and as this pod finds it."""
        self._follow_outlines()
        request, policy = ask.request, self.policy_for(ask)
        table = self._tables.get((request, policy))
        changed = None if table is None else self._ledger.changed_since(table.generation)
        if table is None or changed is None:
            table = self._tables[request, policy] = self._new_table(request, policy)
        else:
            for name in changed:
                self._put(table, name, request, policy)
        table.generation = self._ledger.generation
        reserved = self._ledger.reserved_nodes(uid)
        return table if not reserved else table.with_verdicts({name: self._own(name, ask, uid) for name in reserved})

    def _new_table(self, request: Request, policy: PolicyName) -> Table:
        table = Table(lambda name: SCORES[policy](self._outlines[name], request, self._demand))
        if is_plain(request):
            table.fill(reasons(self._outlines, request))
        else:
            table.fill((name, self._plain(name, request, policy)) for name in self._outlines)
        return table

    def _put(self, table: Table, name: str, request: Request, policy: PolicyName) -> None:
        node = self._outlines.get(name)
        if node is None:
            table.drop(name)
        else:
            table.put(name, outline_reason(node, request) if is_plain(request) else self._plain(name, request, policy))

    def _plain(self, name: str, request: Request, policy: PolicyName) -> Verdict:
        return _verdict(judge(self._ledger.node(name), request, policy, self._demand))

    def _own(self, name: str, ask: Ask, uid: str) -> Verdict:
        return _verdict(self.judge(name, ask, uid))

    def _follow_outlines(self) -> None:
        """Draw again what changed since the last question."""
        generation = self._ledger.generation
        if generation == self._outlined_at:
            return
        changed = self._ledger.changed_since(self._outlined_at)
        if changed is None:
            self._outlines.clear()
            changed = self._ledger.node_names()
        for name in changed:
            node = self._ledger.node(name)
            if node is None:
                self._outlines.pop(name, None)
            else:
                self._outlines[name] = outline(node)
        self._outlined_at = generation


def _verdict(judgement: Judgement) -> Verdict:
    return judgement.reason if isinstance(judgement, Unfit) else judgement.score
