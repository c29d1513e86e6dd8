"""The summaries of all nodes by name, and the nodes by equivalence class: verdicts for a size of request not seen before."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from vrampack.cards.node_summary import EquivalenceClass, NodeSummary, find_equivalence_class
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import CardRequest

RequestKind = tuple[int, bool]
"""How many cards, and whether whole ones."""


class NodeSummaryIndex:
    """Nodes come and go one at a time; a grouping is built when a request of its kind is first seen, and then kept up to date."""

    def __init__(self) -> None:
        self._summaries: dict[str, NodeSummary] = {}
        self._groups: dict[RequestKind, dict[EquivalenceClass, dict[str, None]]] = {}

    def __len__(self) -> int:
        return len(self._summaries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._summaries)

    def get_summary(self, name: str) -> NodeSummary | None:
        return self._summaries.get(name)

    def list_summaries(self, names: Iterable[str]) -> Iterator[tuple[str, NodeSummary]]:
        """Names that are in the index, with their summaries."""
        names = list(names)
        return zip(names, map(self._summaries.__getitem__, names), strict=True)

    def clear(self) -> None:
        self._summaries.clear()
        self._groups.clear()

    def put_summary(self, name: str, summary: NodeSummary | None) -> None:
        """Replace the node's summary; None removes it."""
        before = self._summaries.pop(name, None)
        for (count, whole), groups in self._groups.items():
            if before is not None:
                _remove_from_group(groups, find_equivalence_class(before, count, whole=whole), name)
            if summary is not None:
                groups.setdefault(find_equivalence_class(summary, count, whole=whole), {})[name] = None
        if summary is not None:
            self._summaries[name] = summary

    def find_obstacle(self, name: str, request: CardRequest) -> UnfitReason | None:
        """Why the plain request does not fit on this node of the index; None when it does."""
        return find_equivalence_class(self._summaries[name], request.count, whole=request.whole).find_obstacle(request)

    def group_by_obstacle(self, request: CardRequest) -> Iterator[tuple[UnfitReason | None, Collection[str]]]:
        """All nodes by why the plain request does not fit; a reason may come several times."""
        kind = request.count, request.whole
        groups = self._groups.get(kind)
        if groups is None:
            groups = self._groups[kind] = self._group(kind)
        return ((equivalence_class.find_obstacle(request), names) for equivalence_class, names in groups.items())

    def _group(self, kind: RequestKind) -> dict[EquivalenceClass, dict[str, None]]:
        count, whole = kind
        groups: dict[EquivalenceClass, dict[str, None]] = {}
        for name, summary in self._summaries.items():
            groups.setdefault(find_equivalence_class(summary, count, whole=whole), {})[name] = None
        return groups


def _remove_from_group(groups: dict[EquivalenceClass, dict[str, None]], key: EquivalenceClass, name: str) -> None:
    del groups[key][name]
    if not groups[key]:
        del groups[key]
