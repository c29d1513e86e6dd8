"""The outlines of all nodes by name, and the same nodes by gist: what answers a size of request that nobody has asked for yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from vrampack.cards.fit import Reason
from vrampack.cards.outline import Gist, Outline, gist
from vrampack.cards.request import Request

Kind = tuple[int, bool]
"""How many cards, and whether whole ones."""


class Outlines:
    """Nodes come and go one at a time; a grouping is made when a request of its kind is first seen, and then followed."""

    def __init__(self) -> None:
        self._outlines: dict[str, Outline] = {}
        self._groups: dict[Kind, dict[Gist, dict[str, None]]] = {}

    def __len__(self) -> int:
        return len(self._outlines)

    def __iter__(self) -> Iterator[str]:
        return iter(self._outlines)

    def get(self, name: str) -> Outline | None:
        return self._outlines.get(name)

    def of(self, names: Iterable[str]) -> Iterator[tuple[str, Outline]]:
        """Names that are here, with their outlines."""
        names = list(names)
        return zip(names, map(self._outlines.__getitem__, names), strict=True)

    def clear(self) -> None:
        self._outlines.clear()
        self._groups.clear()

    def put(self, name: str, drawn: Outline | None) -> None:
        """What holds for the node from now on; None when it is gone."""
        before = self._outlines.pop(name, None)
        for (count, whole), groups in self._groups.items():
            if before is not None:
                _take(groups, gist(before, count, whole=whole), name)
            if drawn is not None:
                groups.setdefault(gist(drawn, count, whole=whole), {})[name] = None
        if drawn is not None:
            self._outlines[name] = drawn

    def reason(self, name: str, request: Request) -> Reason | None:
        """Why the plain request does not fit on this node, which is here; None when it does."""
        return gist(self._outlines[name], request.count, whole=request.whole).reason(request)

    def reasons(self, request: Request) -> Iterator[tuple[Reason | None, Collection[str]]]:
        """All nodes by why the plain request does not fit; a reason may come several times."""
        kind = request.count, request.whole
        groups = self._groups.get(kind)
        if groups is None:
            groups = self._groups[kind] = self._group(kind)
        return ((each.reason(request), names) for each, names in groups.items())

    def _group(self, kind: Kind) -> dict[Gist, dict[str, None]]:
        count, whole = kind
        groups: dict[Gist, dict[str, None]] = {}
        for name, drawn in self._outlines.items():
            groups.setdefault(gist(drawn, count, whole=whole), {})[name] = None
        return groups


def _take(groups: dict[Gist, dict[str, None]], key: Gist, name: str) -> None:
    del groups[key][name]
    if not groups[key]:
        del groups[key]
