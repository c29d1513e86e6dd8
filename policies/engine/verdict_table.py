"""One table: for one shape of request and one policy, which nodes fit and how good they are, by name.

    put(name, verdict) --> fitting (scores, looked up when first ranked) | later | never

A table answers for any set of names in the order asked, in a few passes over them that Python runs in C. Ranking keeps
the fitting names in buckets of equal score: nodes come and go one at a time, and only the best few are ever asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from heapq import nsmallest

from vrampack.cards.node import Node
from vrampack.cards.reasons import UnfitReason

NodeVerdict = float | UnfitReason | None
"""A score, why not, or None: it fits, and its score has not been asked for."""

ReservedRank = tuple[Node, object, tuple[int, float]]
"""The node and the promises for which it holds, and the tier and score."""

_UNKNOWN_NODE = UnfitReason.NOT_SEEN.value
_TEXTS = {reason: reason.value for reason in UnfitReason}


@dataclass(frozen=True, slots=True)
class FilterOutcome:
    """Which of the nodes asked about fit, in the order asked, and the reasons of the others."""

    passed: list[str]
    unschedulable: dict[str, str]
    """Could fit after something changes."""
    unresolvable: dict[str, str]

    def with_node_passed(self, passed_name: str, names: Sequence[str]) -> FilterOutcome:
        """The same, with this one of the names among those that fit."""
        passing = {passed_name, *self.passed}
        return FilterOutcome(
            [name for name in dict.fromkeys(names) if name in passing],
            {name: why for name, why in self.unschedulable.items() if name != passed_name},
            {name: why for name, why in self.unresolvable.items() if name != passed_name},
        )


class VerdictTable:
    """See the module. `scores_of` ranks nodes that fit."""

    def __init__(self, score_nodes: Callable[[Iterable[str]], Iterable[tuple[str, float]]]) -> None:
        self.generation = 0
        """Of the ledger, up to which this table is right."""
        self.reserved_ranks: dict[str, ReservedRank] = {}
        """What nodes are worth beside promises, as long as neither changes; kept by the engine."""
        self._score_nodes = score_nodes
        self._fitting: dict[str, float | None] = {}
        self._unschedulable: dict[str, str] = {}
        self._unresolvable: dict[str, str] = {}
        self._buckets: defaultdict[float, set[str]] | None = None

    def put_verdict(self, name: str, verdict: NodeVerdict) -> None:
        """What holds for the node from now on."""
        self.drop_node(name)
        if isinstance(verdict, UnfitReason):
            (self._unresolvable if verdict.is_unresolvable else self._unschedulable)[name] = _TEXTS[verdict]
            return
        if self._buckets is not None:
            verdict = self._compute_score(name) if verdict is None else verdict
            self._buckets[verdict].add(name)
        self._fitting[name] = verdict

    def drop_node(self, name: str) -> None:
        """The node is gone, or about to be put again."""
        if name in self._fitting:
            score = self._fitting.pop(name)
            if self._buckets is not None and score is not None:
                self._buckets[score].discard(name)
        elif self._unschedulable.pop(name, None) is None:
            self._unresolvable.pop(name, None)

    def put_verdicts(self, names: Iterable[str], reason: UnfitReason | None) -> None:
        """The same for many nodes of a table that has none of them yet."""
        if reason is None:
            self._fitting.update(dict.fromkeys(names))
        else:
            (self._unresolvable if reason.is_unresolvable else self._unschedulable).update(
                dict.fromkeys(names, _TEXTS[reason])
            )

    def is_fitting(self, name: str) -> bool:
        return name in self._fitting

    def get_score(self, name: str) -> float:
        """Of a node that fits."""
        known = self._fitting[name]
        return self._compute_score(name) if known is None else known

    def with_verdicts(self, verdicts: Mapping[str, NodeVerdict]) -> VerdictTable:
        """A copy in which these nodes are others: what one pod finds is told to nobody else."""
        made = VerdictTable(self._score_nodes)
        made.reserved_ranks = self.reserved_ranks
        made._fitting, made._unschedulable, made._unresolvable = (
            dict(self._fitting),
            dict(self._unschedulable),
            dict(self._unresolvable),
        )
        for name, verdict in verdicts.items():
            made.put_verdict(name, verdict)
        return made

    def filter_nodes(self, names: Sequence[str]) -> FilterOutcome:
        """Answer for these names, each once. In one pass: most of a verb's time goes into looking thousands of names up."""
        why_of = self._unschedulable.get
        later: dict[str, str] = {}
        others: list[str] = []
        for name in names:
            why = why_of(name)
            if why is None:
                others.append(name)
            else:
                later[name] = why
        distinct = set(others)
        if len(distinct) < len(others):
            others = list(dict.fromkeys(others))
        if distinct <= self._fitting.keys():
            return FilterOutcome(others, later, {})
        passed = [name for name in others if name in self._fitting]
        never = {name: self._unresolvable[name] for name in others if name in self._unresolvable}
        unseen = distinct.difference(self._fitting, self._unresolvable)
        return FilterOutcome(passed, later | {name: _UNKNOWN_NODE for name in others if name in unseen}, never)

    def rank_nodes(self, candidates: AbstractSet[str], count: int) -> list[tuple[float, str]]:
        """The best `count` of the candidates that fit, with scores, best first; equal scores in the order of names."""
        buckets = self._get_buckets()
        found: list[tuple[float, str]] = []
        for score in sorted(buckets, reverse=True):
            found += ((score, name) for name in nsmallest(count - len(found), buckets[score] & candidates))
            if len(found) == count:
                break
        return found

    def _get_buckets(self) -> Mapping[float, set[str]]:
        """The buckets, made when they are first needed: many a shape is filtered and never ranked."""
        buckets = self._buckets
        if buckets is None:
            self._fitting.update(self._score_nodes([name for name, score in self._fitting.items() if score is None]))
            self._buckets = buckets = defaultdict(set)
            for name, score in self._fitting.items():
                buckets[score].add(name)  # type: ignore[index]  # none is unscored any more
        empty = [score for score, bucket in buckets.items() if not bucket]
        for score in empty:
            del buckets[score]
        return buckets

    def _compute_score(self, name: str) -> float:
        ((_, score),) = self._score_nodes([name])
        return score
