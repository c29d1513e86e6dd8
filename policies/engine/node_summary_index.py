"""The summaries of all nodes by name, and the nodes by equivalence class: gives verdicts for new requests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from cachetools import LRUCache

from policies.engine.change_log import NodeChangeLog
from policies.engine.stale_nodes import StaleNodes
from vrampack.cards.node_summary import (
    EquivalenceClass,
    NodeSummary,
    NodeTraits,
    RequestKind,
    find_equivalence_class,
    get_node_traits,
    get_request_kind,
    group_by_equivalence_class,
    select_view,
)
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import CardRequest
from vrampack.cards.rules import LONER

GROUPED_KINDS = 8
"""How many request kinds have groups: every change to a node changes all of them, and each takes 0.1 KB a node."""
DRAFTED_KINDS = 4
"""How many kinds are grouped slice by slice at a time."""

NodeGroups = dict[EquivalenceClass, dict[str, None]]


@dataclass(frozen=True, slots=True)
class GroupDraft:
    """The groups of one kind while some nodes are still missing."""

    stale_nodes: StaleNodes
    groups: NodeGroups = field(default_factory=dict)


_Group = TypeVar("_Group")
_Member = TypeVar("_Member")


class NodeSummaryIndex:
    """Groups nodes. A grouping is built when a request of its kind is first seen, and then updated node by node."""

    def __init__(self) -> None:
        self._summaries: dict[str, NodeSummary] = {}
        self._by_traits: dict[NodeTraits, dict[str, NodeSummary]] = {}
        self.changes = NodeChangeLog()
        """A node counts as changed when its summary is another object."""
        self._groups: LRUCache[RequestKind, NodeGroups] = LRUCache(maxsize=GROUPED_KINDS)
        self._drafts: LRUCache[RequestKind, GroupDraft] = LRUCache(maxsize=DRAFTED_KINDS)

    def __len__(self) -> int:
        return len(self._summaries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._summaries)

    def get_summary(self, name: str) -> NodeSummary | None:
        return self._summaries.get(name)

    def list_summaries(self, names: Iterable[str], request: CardRequest) -> Iterator[tuple[str, NodeSummary]]:
        """The names that are in the index, with summaries of the cards that the request's models and rules allow."""
        names = list(names)
        summaries: Iterable[NodeSummary] = map(self._summaries.__getitem__, names)
        if request.models is not None or request.rules is not None:
            summaries = (select_view(summary, request) for summary in summaries)
        return zip(names, summaries, strict=True)

    def list_nodes_with_tenant(self, request: CardRequest) -> list[str]:
        """The nodes with pods of its tenant: all others look the same to it as to a tenant without pods."""
        tenant = LONER if request.rules is None or request.rules.tenant is None else request.rules.tenant
        return [name for name, summary in self._summaries.items() if summary.get_ruled_node().views.has_tenant(tenant)]

    def drop_groups(self) -> None:
        """Forget all groups, because nearly all nodes are about to change."""
        self._groups.clear()
        self._drafts.clear()

    def forget_all(self) -> None:
        """Become empty; to its followers all nodes have changed."""
        self._summaries.clear()
        self._by_traits.clear()
        self.drop_groups()
        self.changes.record_any_change()

    def copy_from(self, other: NodeSummaryIndex) -> None:
        """Become a copy of the other index."""
        self._summaries = dict(other._summaries)
        self._by_traits = {traits: dict(summaries) for traits, summaries in other._by_traits.items()}
        self.changes.record_any_change()
        self.drop_groups()
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
            _move_node(groups, kind, name, before, summary)
        for kind, draft in self._drafts.items() if len(self._drafts) else ():
            if name not in draft.stale_nodes:
                _move_node(draft.groups, kind, name, before, summary)
            elif summary is None:
                del draft.stale_nodes[name]

    def find_obstacle(self, name: str, request: CardRequest) -> UnfitReason | None:
        """Why the request does not fit on this node of the index, which has none of the cards it names; None when it does."""
        return find_equivalence_class(self._summaries[name], get_request_kind(request)).find_obstacle(request)

    def group_slice(self, request: CardRequest, limit: int) -> bool:
        """Group at most `limit` nodes for requests of this kind; true when more are left."""
        kind = get_request_kind(request)
        if kind in self._groups:
            return False
        draft = self._drafts.get(kind)
        if draft is None:
            draft = self._drafts[kind] = GroupDraft(StaleNodes(dict.fromkeys(self._summaries)))
        for name in draft.stale_nodes.take_slice(limit):
            _move_node(draft.groups, kind, name, None, self._summaries[name])
        if not draft.stale_nodes:
            self._groups[kind] = draft.groups
            del self._drafts[kind]
        return bool(draft.stale_nodes)

    def group_by_obstacle(self, request: CardRequest) -> Iterator[tuple[UnfitReason | None, Collection[str]]]:
        """All nodes by the reason why the request does not fit, as if they had none of the cards it names; a reason may repeat."""
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


def _move_node(
    groups: NodeGroups, kind: RequestKind, name: str, before: NodeSummary | None, summary: NodeSummary | None
) -> None:
    """Move the node to the group of its new summary."""
    if before is not None:
        _remove_from_group(groups, find_equivalence_class(before, kind), name)
    if summary is not None:
        groups.setdefault(find_equivalence_class(summary, kind), {})[name] = None


def _remove_from_group(groups: dict[_Group, dict[str, _Member]], key: _Group, name: str) -> None:
    del groups[key][name]
    if not groups[key]:
        del groups[key]
