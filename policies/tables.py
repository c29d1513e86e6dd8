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

from vrampack.cards.fit import Reason
from vrampack.cards.node import Node

Verdict = float | Reason | None
"""A score, why not, or None: it fits, and its score has not been asked for."""

Beside = tuple[Node, object, tuple[int, float]]
"""The node and the promises for which it holds, and the tier and score."""

_NOT_SEEN = Reason.NOT_SEEN.value
_TEXTS = {reason: reason.value for reason in Reason}


@dataclass(frozen=True, slots=True)
class Sorted:
    """Which of the nodes asked about fit, in the order asked, and the reasons of the others."""

    passed: list[str]
    later: dict[str, str]
    """Could fit after something changes."""
    never: dict[str, str]

    def but_passing(self, wanted: str, names: Sequence[str]) -> Sorted:
        """The same, with this one of the names among those that fit."""
        passing = {wanted, *self.passed}
        return Sorted(
            [name for name in dict.fromkeys(names) if name in passing],
            {name: why for name, why in self.later.items() if name != wanted},
            {name: why for name, why in self.never.items() if name != wanted},
        )


class Table:
    """See the module. `scores_of` ranks nodes that fit."""

    def __init__(self, scores_of: Callable[[Iterable[str]], Iterable[tuple[str, float]]]) -> None:
        self.generation = 0
        """Of the ledger, up to which this table is right."""
        self.beside: dict[str, Beside] = {}
        """What nodes are worth beside promises, as long as neither changes; kept by the engine."""
        self._scores_of = scores_of
        self._fitting: dict[str, float | None] = {}
        self._later: dict[str, str] = {}
        self._never: dict[str, str] = {}
        self._buckets: defaultdict[float, set[str]] | None = None

    def put(self, name: str, verdict: Verdict) -> None:
        """What holds for the node from now on."""
        self.drop(name)
        if isinstance(verdict, Reason):
            (self._never if verdict.is_never else self._later)[name] = _TEXTS[verdict]
            return
        if self._buckets is not None:
            verdict = self._score(name) if verdict is None else verdict
            self._buckets[verdict].add(name)
        self._fitting[name] = verdict

    def drop(self, name: str) -> None:
        """The node is gone, or about to be put again."""
        if name in self._fitting:
            score = self._fitting.pop(name)
            if self._buckets is not None and score is not None:
                self._buckets[score].discard(name)
        elif self._later.pop(name, None) is None:
            self._never.pop(name, None)

    def fill(self, names: Iterable[str], reason: Reason | None) -> None:
        """The same for many nodes of a table that has none of them yet."""
        if reason is None:
            self._fitting.update(dict.fromkeys(names))
        else:
            (self._never if reason.is_never else self._later).update(dict.fromkeys(names, _TEXTS[reason]))

    def fits(self, name: str) -> bool:
        return name in self._fitting

    def score(self, name: str) -> float:
        """Of a node that fits."""
        known = self._fitting[name]
        return self._score(name) if known is None else known

    def with_verdicts(self, verdicts: Mapping[str, Verdict]) -> Table:
        """A copy in which these nodes are others: what one pod finds is told to nobody else."""
        made = Table(self._scores_of)
        made.beside = self.beside
        made._fitting, made._later, made._never = dict(self._fitting), dict(self._later), dict(self._never)
        for name, verdict in verdicts.items():
            made.put(name, verdict)
        return made

    def sort(self, names: Sequence[str]) -> Sorted:
        """Answer for these names, each once. In one pass: most of a verb's time goes into looking thousands of names up."""
        why_of = self._later.get
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
            return Sorted(others, later, {})
        passed = [name for name in others if name in self._fitting]
        never = {name: self._never[name] for name in others if name in self._never}
        unseen = distinct.difference(self._fitting, self._never)
        return Sorted(passed, later | {name: _NOT_SEEN for name in others if name in unseen}, never)

    def best(self, candidates: AbstractSet[str], count: int) -> list[tuple[float, str]]:
        """The best `count` of the candidates that fit, with scores, best first; equal scores in the order of names."""
        buckets = self._ranked()
        found: list[tuple[float, str]] = []
        for score in sorted(buckets, reverse=True):
            found += ((score, name) for name in nsmallest(count - len(found), buckets[score] & candidates))
            if len(found) == count:
                break
        return found

    def _ranked(self) -> Mapping[float, set[str]]:
        """The buckets, made when they are first needed: many a shape is filtered and never ranked."""
        buckets = self._buckets
        if buckets is None:
            self._fitting.update(self._scores_of([name for name, score in self._fitting.items() if score is None]))
            self._buckets = buckets = defaultdict(set)
            for name, score in self._fitting.items():
                buckets[score].add(name)  # type: ignore[index]  # none is unscored any more
        empty = [score for score, bucket in buckets.items() if not bucket]
        for score in empty:
            del buckets[score]
        return buckets

    def _score(self, name: str) -> float:
        ((_, score),) = self._scores_of([name])
        return score
