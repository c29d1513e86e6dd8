"""The fit class of every node for one kind of request: a new size of request is answered class by class.

Nothing is kept for a request and a node. What a tenant's own pods leave it, and what is kept for nominated pods, concerns
few nodes: these have an index of their own, whose classes replace those of the index of all nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from cachetools import LRUCache

from policies.engine.cluster_shapes import ClusterShapes, ShapesByName
from policies.engine.following import LogFollower
from vrampack.cards.request import CardRequest
from vrampack.cards.shape import FitClass, FitClasses, get_new_tenants_kind, get_request_kind

MAX_INDEXES = 8
"""How many kinds of request have an index of all nodes, at 0.1 KB a node."""
MAX_PART_INDEXES = 256
"""How many tenants and floors have an index of their few nodes."""
MIN_CLASSES = 64
"""At least this many classes stay known, however few nodes there are."""


class FitIndex(LogFollower):
    """Over shapes that change; with a tenant, over those of nodes that have pods of this tenant."""

    def __init__(self, source: ShapesByName, kind: CardRequest, tenant: bytes | None = None) -> None:
        super().__init__(source.changes)
        self.classes: dict[str, FitClass] = {}
        self._source = source
        self._tenant = tenant
        self._fit_classes = FitClasses(kind)

    def _note_changes(self) -> None:
        super()._note_changes()
        if self._stale_nodes and len(self._fit_classes) > 2 * len(self.classes) + MIN_CLASSES:
            self._fit_classes.keep_only(set(self.classes.values()))

    def _list_all_names(self) -> Iterable[str]:
        if self._tenant is not None and isinstance(self._source, ClusterShapes):
            return *self.classes, *self._source.names_by_tenant.get(self._tenant, ())
        return *self.classes, *self._source.shapes

    def _put_node(self, name: str) -> None:
        shape = self._source.shapes.get(name)
        if shape is None or (self._tenant is not None and self._tenant not in shape.tenants):
            self.classes.pop(name, None)
        else:
            self.classes[name] = self._fit_classes.find_class(shape)


_Indexes: TypeAlias = "LRUCache[tuple[CardRequest, ShapesByName], FitIndex]"


class FitIndexes:
    """The indexes of the kinds in use, over one cluster."""

    def __init__(self, cluster: ClusterShapes) -> None:
        self._cluster = cluster
        self._indexes: _Indexes = LRUCache(MAX_INDEXES)
        self._parts: _Indexes = LRUCache(MAX_PART_INDEXES)

    def get_classes(self, request: CardRequest, kept: ShapesByName | None = None) -> Mapping[str, FitClass]:
        """The classes of all nodes now, for requests of this kind that name no cards; `kept`: the shapes of some nodes."""
        indexes = self.list_indexes(request, kept)
        for index in indexes:
            index.follow()
        classes = indexes[0].classes
        for part in indexes[1:]:
            if part.classes:
                classes = classes | part.classes
        return classes

    def list_indexes(self, request: CardRequest, kept: ShapesByName | None) -> list[FitIndex]:
        """Those that decide about the request, each more exact than the one before on the nodes that it has."""
        kind = get_request_kind(request)
        indexes = [_find_index(self._indexes, get_new_tenants_kind(kind), self._cluster)]
        if request.rules is not None and request.rules.tenant in self._cluster.names_by_tenant:
            indexes.append(_find_index(self._parts, kind, self._cluster, request.rules.tenant))
        if kept is not None:
            indexes.append(_find_index(self._parts, kind, kept))
        return indexes


def _find_index(indexes: _Indexes, kind: CardRequest, source: ShapesByName, tenant: bytes | None = None) -> FitIndex:
    index = indexes.get((kind, source))
    if index is None:
        index = indexes[kind, source] = FitIndex(source, kind, tenant)
    return index
