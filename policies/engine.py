"""Asks `vrampack.cards.fit` and the policies about the nodes of a ledger, and remembers what they said while nothing changes.

    ledger --changed nodes--> outlines --> one table for each shape of request and policy --> verdicts, best

Places promised to other pods lower the rank of their nodes, as if they were held already, and refuse nobody.

All caching of the project's decisions is here. Outlines and tables follow the ledger when they are next asked, node by
node; `policies.judging` is the same without memory, the oracle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from cachetools import LRUCache

from policies.beside import Beside, Place
from policies.judging import SCORES, Judgement, judge
from policies.layout import Laid
from policies.outlines import Outlines
from policies.policy import Demand, Ranked
from policies.tables import Sorted, Table, Verdict
from policies.tuning import PolicyName, PolicyTuning
from vrampack.cards.fit import Unfit, fitting_cards
from vrampack.cards.node import Node
from vrampack.cards.outline import gist, is_plain, outline
from vrampack.cards.request import Ask, Request

SHAPES_KEPT = 64
"""Request shapes whose tables are kept: a cluster asks for tens of sizes, and 64 tables of 5,000 nodes are 40 MB."""


NO_PLACES: Sequence[Place] = ()


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
        """The node as the pod `uid` finds it: what is reserved for it is free, what is kept for others is not."""
        ...

    def special_nodes(self, uid: str) -> Collection[str]:
        """The nodes that are others to this pod than to everybody else."""
        ...


class Promised(Protocol):
    """Places that were named to pods and are not bound yet."""

    def of_others(self, uid: str) -> Mapping[str, Sequence[Place]]:
        """What is promised to other pods, by node: the same object as long as it is the same."""
        ...

    def own(self, uid: str) -> Laid | None:
        """What was promised to the pod itself."""
        ...


class NothingPromised:
    """For those who only ask what fits."""

    def of_others(self, uid: str) -> Mapping[str, Sequence[Place]]:  # noqa: ARG002 - the shape
        return {}

    def own(self, uid: str) -> Laid | None:  # noqa: ARG002 - the shape
        return None


class Engine:
    """Judges nodes for requests under one tuning. Same ledger, same request: same answer."""

    def __init__(
        self,
        ledger: LedgerView,
        tuning: PolicyTuning,
        demand: Demand | None = None,
        promised: Promised | None = None,
    ) -> None:
        self._ledger = ledger
        self._tuning = tuning
        self._promised = promised or NothingPromised()
        self._demand = demand or Demand()
        self._outlines = Outlines()
        self._beside = Beside()
        self._outlined_at = 0
        self._tables: LRUCache[tuple[Request, PolicyName], Table] = LRUCache(maxsize=SHAPES_KEPT)

    def retune(self, tuning: PolicyTuning) -> None:
        """Judge under this tuning from now on."""
        self._tuning = tuning
        self._tables.clear()

    def policy_for(self, ask: Ask) -> PolicyName:
        """The pod's wish within what the operator allows, else the default."""
        return self._tuning.chosen(ask.policy)

    def judge(self, name: str, ask: Ask, uid: str) -> Judgement:
        """Where the pod would go on this node, or why it cannot.

        To the cards it was promised, if they still fit; else beside what others were promised, if that is possible.
        """
        node = self._ledger.node_for(name, uid)
        if node is None:
            return self._judge(node, ask)
        own = self._promised.own(uid)
        if own is not None and own.node_name == name:
            fitting = fitting_cards(node, ask.request)
            cards = () if isinstance(fitting, Unfit) else tuple(card for card in fitting if card.index in own.cards)
            if len(cards) == len(own.cards) == ask.request.count:
                return Ranked(own.score, cards)
        places = self._promised.of_others(uid).get(name)
        beside = self._judge(self._beside.find(node, places).node, ask) if places else None
        return beside if isinstance(beside, Ranked) else self._judge(node, ask)

    def is_like_others(self, uid: str) -> bool:
        """Whether every node is to this pod what it is to any other."""
        return not self._ledger.special_nodes(uid)

    def verdicts(self, names: Sequence[str], ask: Ask, uid: str) -> Sorted:
        """Which of these nodes can take the pod now, and why the others cannot."""
        return self._table(ask, uid, self._ledger.special_nodes(uid)).sort(names)

    def best(self, names: Iterable[str], ask: Ask, uid: str, count: int, avoided: Collection[str] = ()) -> list[str]:
        """The best of these nodes, best first: a total order, ties end in the node name.

        Nodes that only have room where others were promised it come after the rest, and `avoided` ones last of all.
        """
        special = self._ledger.special_nodes(uid)
        table = self._table(ask, uid, special)
        promised = self._promised.of_others(uid)
        candidates = set(names)
        if not promised and not avoided:
            return [name for _, name in table.best(candidates, count)]
        self._beside.forget(promised)
        others = candidates & {*promised, *avoided}
        candidates.difference_update(others)
        ranked = [(0, score, name) for score, name in table.best(candidates, count)]
        for name in others:
            if table.fits(name):
                places = promised.get(name, NO_PLACES)
                tier, score = self._rank(table, name, places, ask, uid if name in special else "")
                ranked.append((2 if name in avoided else tier, score, name))
        return [name for _, _, name in sorted(ranked, key=lambda each: (each[0], -each[1], each[2]))[:count]]

    def _rank(self, table: Table, name: str, places: Sequence[Place], ask: Ask, uid: str) -> tuple[int, float]:
        """0 and a score where the pod fits beside what is promised there, 1 where only instead of that.

        `uid` of a pod that finds this node as nobody else does: what holds for it is not kept for others.
        """
        node = self._ledger.node_for(name, uid) if uid else self._ledger.node(name)
        if node is None or not places:
            return 0, table.score(name)
        known = table.beside.get(name)
        if known is not None and known[0] is node and known[1] is places:
            return known[2]
        beside = self._score_beside(node, places, ask)
        rank = (1, table.score(name)) if beside is None else (0, beside)
        if not uid:
            table.beside[name] = node, places, rank
        return rank

    def _score_beside(self, node: Node, places: Sequence[Place], ask: Ask) -> float | None:
        found, request = self._beside.find(node, places), ask.request
        if not is_plain(request):
            judged = self._judge(found.node, ask)
            return judged.score if isinstance(judged, Ranked) else None
        if gist(found.outline, request.count, whole=request.whole).reason(request) is not None:
            return None
        ((_, score),) = SCORES[self.policy_for(ask)]([(node.name, found.outline)], request, self._demand)
        return score

    def _judge(self, node: Node | None, ask: Ask) -> Judgement:
        return judge(node, ask.request, self.policy_for(ask), self._demand)

    def _table(self, ask: Ask, uid: str, special: Collection[str]) -> Table:
        """The table of this shape and policy, as the ledger is now and as this pod finds its special nodes."""
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
        return table if not special else table.with_verdicts({name: self._own(name, ask, uid) for name in special})

    def _new_table(self, request: Request, policy: PolicyName) -> Table:
        scores = SCORES[policy]
        table = Table(lambda names: scores(self._outlines.of(names), request, self._demand))
        if is_plain(request):
            for reason, names in self._outlines.reasons(request):
                table.fill(names, reason)
        else:
            for name in self._outlines:
                table.put(name, self._plain(name, request, policy))
        return table

    def _put(self, table: Table, name: str, request: Request, policy: PolicyName) -> None:
        if self._outlines.get(name) is None:
            table.drop(name)
        else:
            is_simple = is_plain(request)
            table.put(name, self._outlines.reason(name, request) if is_simple else self._plain(name, request, policy))

    def _plain(self, name: str, request: Request, policy: PolicyName) -> Verdict:
        return _verdict(judge(self._ledger.node(name), request, policy, self._demand))

    def _own(self, name: str, ask: Ask, uid: str) -> Verdict:
        return _verdict(self._judge(self._ledger.node_for(name, uid), ask))

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
            self._outlines.put(name, None if node is None else outline(node))
        self._outlined_at = generation


def _verdict(judgement: Judgement) -> Verdict:
    return judgement.reason if isinstance(judgement, Unfit) else judgement.score
