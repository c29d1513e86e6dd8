"""The summaries of all nodes by name, and the nodes by equivalence class: verdicts for a request not seen before."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TypeVar

from cachetools import LRUCache

from policies.engine.change_log import NodeChangeLog
from vrampack.cards.node_summary import (
    EquivalenceClass,
    NodeSummary,
    NodeTraits,
    RequestKind,
    find_equivalence_class,
    get_node_traits,
    get_request_kind,
    group_by_equivalence_class,
    select_models,
)
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import CardRequest

GROUPED_KINDS = 8
"""Kinds of requests whose groups are kept: every change of a node is a change of each, and each takes 0.1 KB a node."""

NodeGroups = dict[EquivalenceClass, dict[str, None]]

_Group = TypeVar("_Group")
_Member = TypeVar("_Member")


class NodeSummaryIndex:
    """Nodes come and go one at a time; a grouping is built when a request of its kind is first seen, and then kept up to date."""

    def __init__(self) -> None:
        self._summaries: dict[str, NodeSummary] = {}
        self._by_traits: dict[NodeTraits, dict[str, NodeSummary]] = {}
        self.changes = NodeChangeLog()
        """A node changes when its summary is another object."""
        self._groups: LRUCache[RequestKind, NodeGroups] = LRUCache(maxsize=GROUPED_KINDS)

    def __len__(self) -> int:
        return len(self._summaries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._summaries)

    def get_summary(self, name: str) -> NodeSummary | None:
        return self._summaries.get(name)

    def list_summaries(self, names: Iterable[str], models: frozenset[str] | None) -> Iterator[tuple[str, NodeSummary]]:
        """Names that are in the index, with their summaries for requests that allow these models."""
        names = list(names)
        summaries: Iterable[NodeSummary] = map(self._summaries.__getitem__, names)
        if models is not None:
            summaries = (select_models(summary, models) for summary in summaries)
        return zip(names, summaries, strict=True)

    def clear(self) -> None:
        self._summaries.clear()
        self._by_traits.clear()
        self._groups.clear()
        self.changes.record_any_change()

    def copy_from(self, other: NodeSummaryIndex) -> None:
        """Become what the other index is."""
        self._summaries = dict(other._summaries)
        self._by_traits = {traits: dict(summaries) for traits, summaries in other._by_traits.items()}
        self.changes.record_any_change()
        self._groups.clear()
        for kind, groups in other._groups.items():
            self._groups[kind] = {key: dict(names) for key, names in groups.items()}

    def put_summary(self, name: str, summary: NodeSummary | None) -> None:
        """Replace the node's summary; None removes it."""
        before = self._summaries.get(name)
        if before is summary:
            return
        self.changes.record_change(name)
        traits = None if summary is None else get_node_traits(summary)
        if before is not None and (traits_before := get_node_traits(before)) != traits:
            _remove_from_group(self._by_traits, traits_before, name)
        if summary is None or traits is None:
            del self._summaries[name]
            self.changes.forget_removed_nodes(self._summaries)
        else:
            self._summaries[name] = summary
            self._by_traits.setdefault(traits, {})[name] = summary
        for kind, groups in self._groups.items() if len(self._groups) else ():
            if before is not None:
                _remove_from_group(groups, find_equivalence_class(before, kind), name)
            if summary is not None:
                groups.setdefault(find_equivalence_class(summary, kind), {})[name] = None

    def find_obstacle(self, name: str, request: CardRequest) -> UnfitReason | None:
        """Why the request does not fit on this node of the index, which has none of the cards that it names; None when it does."""
        return find_equivalence_class(self._summaries[name], get_request_kind(request)).find_obstacle(request)

    def group_by_obstacle(self, request: CardRequest) -> Iterator[tuple[UnfitReason | None, Collection[str]]]:
        """All nodes by why the request does not fit, if they have none of the cards that it names; a reason may come several times."""
        kind = get_request_kind(request)
        groups = self._groups.get(kind)
        if groups is None:
            groups = self._groups[kind] = self._group(kind)
        return ((equivalence_class.find_obstacle(request), names) for equivalence_class, names in groups.items())

    def _group(self, kind: RequestKind) -> NodeGroups:
        groups: NodeGroups = {}
        for summaries in self._by_traits.values():
            for equivalence_class, names in group_by_equivalence_class(summaries, kind).items():
                groups.setdefault(equivalence_class, {}).update(names)
        return groups


def _remove_from_group(groups: dict[_Group, dict[str, _Member]], key: _Group, name: str) -> None:
    del groups[key][name]
    if not groups[key]:
        del groups[key]
