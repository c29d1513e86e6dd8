"""Everything the embedded API server serves, as one list: what `vrampack/kube/` calls, and what people with kubectl need.

`routes.py` registers exactly this and docs/embedded-cluster.md prints it; a test compares the three.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from vrampack.simulator.kinds import KINDS, POD, Kind

Call: TypeAlias = Literal[
    "list_or_watch", "create", "get", "patch", "delete", "patch_status", "get_scale", "patch_scale", "bind", "evict"
]
"""What is done to an object of a kind."""
Page: TypeAlias = Literal["probe", "version", "versions", "groups", "group", "resources", "schemas", "schema"]
"""What is told about the server itself."""


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path, and what answers it; `kind` for calls only."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    answer: Call | Page
    kind: Kind | None = None


ABOUT = (
    Route("GET", "/healthz", "probe"),
    Route("GET", "/livez", "probe"),
    Route("GET", "/readyz", "probe"),
    Route("GET", "/version", "version"),
    Route("GET", "/api", "versions"),
    Route("GET", "/apis", "groups"),
    Route("GET", "/apis/apps", "group"),
    Route("GET", "/api/v1", "resources"),
    Route("GET", "/apis/apps/v1", "resources"),
    Route("GET", "/openapi/v3", "schemas"),
    Route("GET", "/openapi/v3/api/v1", "schema"),
    Route("GET", "/openapi/v3/apis/apps/v1", "schema"),
)


def surface() -> tuple[Route, ...]:
    return (*ABOUT, *(route for kind in KINDS.values() for route in _routes(kind)))


def collection(kind: Kind) -> str:
    """The path of a kind's objects; of one namespace where it has them."""
    return f"{kind.root}/namespaces/{{namespace}}/{kind.plural}" if kind.is_namespaced else f"{kind.root}/{kind.plural}"


def _routes(kind: Kind) -> Iterator[Route]:
    some = collection(kind)
    one = some + "/{name}"
    if kind.is_namespaced:
        yield Route("GET", f"{kind.root}/{kind.plural}", "list_or_watch", kind)
    yield Route("GET", some, "list_or_watch", kind)
    yield Route("POST", some, "create", kind)
    yield Route("GET", one, "get", kind)
    yield Route("PATCH", one, "patch", kind)
    yield Route("DELETE", one, "delete", kind)
    if "status" in kind.subresources:
        yield Route("GET", f"{one}/status", "get", kind)
        yield Route("PATCH", f"{one}/status", "patch_status", kind)
    if "scale" in kind.subresources:
        yield Route("GET", f"{one}/scale", "get_scale", kind)
        yield Route("PATCH", f"{one}/scale", "patch_scale", kind)
    if kind is POD:
        yield Route("POST", f"{one}/binding", "bind", kind)
        yield Route("POST", f"{one}/eviction", "evict", kind)
