"""One table: for one card request and one policy, which nodes fit and how good they are, by name.

    put_verdict(name, verdict) --> fitting (scores, computed when first ranked) | unfit (reasons)

A table answers for any set of names in the order given, in a few passes over them that Python runs in C. Ranking keeps
the fitting names in buckets of equal score: nodes come and go one at a time, and only the best few are ever ranked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice

from vrampack.cards.node import Node
from vrampack.cards.reasons import UnfitReason

NodeVerdict = float | UnfitReason | None
"""A score, a reason, or None: the node fits, but its score has not been computed."""

Buckets = defaultdict[float, dict[str, None]]
"""Names by score. Not sets: the garbage collector visits every member of a set, but skips a dict of strings to None."""

ReservedRank = tuple[Node, object, object, tuple[int, float]]
"""The node, the reservations and the context for which it is valid; then the tier and score."""

MIN_RANKS_KEPT = 64
"""At least this many are cached, however few nodes have reservations."""
_UNKNOWN_NODE = UnfitReason.NOT_SEEN.value
_TEXTS = {reason: reason.value for reason in UnfitReason}
_UNRESOLVABLE = frozenset(reason.value for reason in UnfitReason if reason.is_unresolvable)


@dataclass(frozen=True, slots=True)
class FilterOutcome:
    """Which of the given nodes fit, in the given order, and the reasons of the others."""

    passed: list[str]
    unschedulable: dict[str, str]
    """Nodes that could fit after something changes."""
    unresolvable: dict[str, str]

    def with_node_passed(self, passed_name: str, names: Sequence[str]) -> FilterOutcome:
        """The same outcome, with this node, one of `names`, among those that fit."""
        passing = {passed_name, *self.passed}
        return FilterOutcome(
            [name for name in dict.fromkeys(names) if name in passing],
            {name: reason for name, reason in self.unschedulable.items() if name != passed_name},
            {name: reason for name, reason in self.unresolvable.items() if name != passed_name},
        )


class VerdictTable:
    """The table that the module describes. `score_nodes` scores nodes that fit."""

    def __init__(self, score_nodes: Callable[[Iterable[str]], Iterable[tuple[str, float]]]) -> None:
        self.generation = 0
        """The generation of its view's changes up to which the table is right."""
        self.reserved_ranks: dict[str, ReservedRank] = {}
        """The engine's cache of ranks of nodes with soft reservations, valid until either changes."""
        self._score_nodes = score_nodes
        self._fitting: dict[str, float | None] = {}
        self._unfit: dict[str, str] = {}
        self._buckets: Buckets | None = None

    def __len__(self) -> int:
        return len(self._fitting) + len(self._unfit)

    def drop_unreserved_ranks(self, reserved_by_node: Mapping[str, object]) -> None:
        """Drop the ranks of nodes without reservations once they are the majority."""
        if len(self.reserved_ranks) > 2 * len(reserved_by_node) + MIN_RANKS_KEPT:
            self.reserved_ranks = {name: rank for name, rank in self.reserved_ranks.items() if name in reserved_by_node}

    def put_verdict(self, name: str, verdict: NodeVerdict) -> None:
        """Replace the node's verdict."""
        self.drop_node(name)
        if isinstance(verdict, UnfitReason):
            self._unfit[name] = _TEXTS[verdict]
            return
        if self._buckets is not None:
            verdict = self._compute_score(name) if verdict is None else verdict
            self._buckets[verdict][name] = None
        self._fitting[name] = verdict

    def drop_node(self, name: str) -> None:
        """Remove the node's verdict: the node is deleted, or the verdict is about to be put again."""
        if name in self._fitting:
            score = self._fitting.pop(name)
            if self._buckets is not None and score is not None:
                self._buckets[score].pop(name, None)
        else:
            self._unfit.pop(name, None)

    def put_verdicts(self, names: Iterable[str], reason: UnfitReason | None) -> None:
        """Put one verdict for many nodes that are not in the table yet; None: they fit."""
        if reason is None:
            self._fitting.update(dict.fromkeys(names))
        else:
            self._unfit.update(dict.fromkeys(names, _TEXTS[reason]))

    def is_fitting(self, name: str) -> bool:
        return name in self._fitting

    def get_score(self, name: str) -> float:
        """The score of a node that fits."""
        known = self._fitting[name]
        return self._compute_score(name) if known is None else known

    def with_verdicts(self, verdicts: Mapping[str, NodeVerdict]) -> VerdictTable:
        """A copy with other verdicts on these nodes, for one pod: other pods must not get them."""
        copy = VerdictTable(self._score_nodes)
        copy.reserved_ranks = self.reserved_ranks
        copy._fitting, copy._unfit = dict(self._fitting), dict(self._unfit)
        for name, verdict in verdicts.items():
            copy.put_verdict(name, verdict)
        return copy

    def copy_verdicts(self, other: VerdictTable) -> None:
        """Copy verdicts and ranking from the table of a request for which most nodes have the same verdict."""
        self._fitting, self._unfit = dict(other._fitting), dict(other._unfit)
        if other._buckets is not None:
            self._buckets = defaultdict(dict, {score: dict(names) for score, names in other._buckets.items()})

    def filter_nodes(self, names: Sequence[str]) -> FilterOutcome:
        """Answer for these distinct names in one pass: most of a verb's time goes into thousands of look-ups."""
        get_reason = self._unfit.get
        unschedulable: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        passed: list[str] = []
        for name in names:
            reason = get_reason(name)
            if reason is None:
                passed.append(name)
            elif reason in _UNRESOLVABLE:
                unresolvable[name] = reason
            else:
                unschedulable[name] = reason
        distinct = set(passed)
        if len(distinct) < len(passed):
            passed = list(dict.fromkeys(passed))
        if not distinct <= self._fitting.keys():
            unschedulable |= {name: _UNKNOWN_NODE for name in passed if name not in self._fitting}
            passed = [name for name in passed if name in self._fitting]
        return FilterOutcome(passed, unschedulable, unresolvable)

    def rank_nodes(self, candidates: AbstractSet[str], count: int) -> list[tuple[float, str]]:
        """The best `count` of the candidates that fit, with scores, best first; equal scores sorted by name."""
        buckets = self._get_buckets()
        best: list[tuple[float, str]] = []
        for score in sorted(buckets, reverse=True):
            best += ((score, name) for name in nsmallest(count - len(best), buckets[score].keys() & candidates))
            if len(best) == count:
                break
        return best

    def score_slice(self, limit: int) -> bool:
        """Score at most `limit` nodes ahead of `prepare_ranking`; true when more are left."""
        names = list(islice((name for name, score in self._fitting.items() if score is None), limit))
        self._fitting.update(self._score_nodes(names))
        return len(names) == limit

    def prepare_ranking(self) -> None:
        """Sort the nodes by their scores."""
        self._get_buckets()

    @property
    def is_ranked(self) -> bool:
        """Whether the nodes are sorted by their scores, and stay so."""
        return self._buckets is not None

    def _get_buckets(self) -> Mapping[float, dict[str, None]]:
        """The buckets, built when first needed: many requests are filtered and never ranked."""
        buckets = self._buckets
        if buckets is None:
            self._fitting.update(self._score_nodes([name for name, score in self._fitting.items() if score is None]))
            self._buckets = buckets = defaultdict(dict)
            for name, score in self._fitting.items():
                buckets[score][name] = None  # type: ignore[index]  # every node has a score now
        empty = [score for score, bucket in buckets.items() if not bucket]
        for score in empty:
            del buckets[score]
        return buckets

    def _compute_score(self, name: str) -> float:
        ((_, score),) = self._score_nodes([name])
        return score
