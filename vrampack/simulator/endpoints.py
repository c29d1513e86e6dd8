"""Everything that the embedded API server serves, as one list: what `vrampack/kube/` calls, and what people with kubectl need.

`routes.py` registers exactly these endpoints and docs/embedded-cluster.md lists them; a test compares the three.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from vrampack.simulator.resource_kinds import KINDS_BY_PLURAL, POD, ResourceKind

ObjectHandlerName: TypeAlias = Literal[
    "list_or_watch", "create", "get", "patch", "delete", "patch_status", "get_scale", "patch_scale", "bind", "evict"
]
"""The operations on an object of a kind."""
ServerPageName: TypeAlias = Literal["probe", "version", "versions", "groups", "group", "resources", "schemas", "schema"]
"""Pages about the server itself."""


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """One method of one path, and the name of its handler; `kind` is only for calls on objects."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    handler: ObjectHandlerName | ServerPageName
    kind: ResourceKind | None = None


SERVER_ENDPOINTS = (
    ApiEndpoint("GET", "/healthz", "probe"),
    ApiEndpoint("GET", "/livez", "probe"),
    ApiEndpoint("GET", "/readyz", "probe"),
    ApiEndpoint("GET", "/version", "version"),
    ApiEndpoint("GET", "/api", "versions"),
    ApiEndpoint("GET", "/apis", "groups"),
    ApiEndpoint("GET", "/apis/apps", "group"),
    ApiEndpoint("GET", "/api/v1", "resources"),
    ApiEndpoint("GET", "/apis/apps/v1", "resources"),
    ApiEndpoint("GET", "/openapi/v3", "schemas"),
    ApiEndpoint("GET", "/openapi/v3/api/v1", "schema"),
    ApiEndpoint("GET", "/openapi/v3/apis/apps/v1", "schema"),
)


ABSENCES = (
    (
        re.compile(r"/api/v1/namespaces/[^/]+/pods/[^/]+/(log|exec|attach|portforward)"),
        "no container runs in the embedded cluster, so no pod has logs and none can be entered",
    ),
    (
        re.compile(r"/apis/apps/v1/(namespaces/[^/]+/)?replicasets(/.*)?"),
        "the embedded cluster has no ReplicaSets, a Deployment makes its pods itself: kubectl get deployments,pods",
    ),
)
"""What a real server has at these paths, and why this one lacks it: people with kubectl ask for these first."""


def explain_absence(path: str) -> str:
    """Why a path of the real API is missing; empty if there is nothing to say."""
    return next((reason for paths, reason in ABSENCES if paths.fullmatch(path)), "")


def list_endpoints() -> tuple[ApiEndpoint, ...]:
    return (*SERVER_ENDPOINTS, *(route for kind in KINDS_BY_PLURAL.values() for route in _list_kind_endpoints(kind)))


def build_collection_path(kind: ResourceKind) -> str:
    """The path of a kind's objects, within a namespace if the kind has namespaces."""
    return (
        f"{kind.path_prefix}/namespaces/{{namespace}}/{kind.plural}"
        if kind.is_namespaced
        else f"{kind.path_prefix}/{kind.plural}"
    )


def _list_kind_endpoints(kind: ResourceKind) -> Iterator[ApiEndpoint]:
    some = build_collection_path(kind)
    one = some + "/{name}"
    if kind.is_namespaced:
        yield ApiEndpoint("GET", f"{kind.path_prefix}/{kind.plural}", "list_or_watch", kind)
    yield ApiEndpoint("GET", some, "list_or_watch", kind)
    yield ApiEndpoint("POST", some, "create", kind)
    yield ApiEndpoint("GET", one, "get", kind)
    yield ApiEndpoint("PATCH", one, "patch", kind)
    yield ApiEndpoint("DELETE", one, "delete", kind)
    if "status" in kind.subresources:
        yield ApiEndpoint("GET", f"{one}/status", "get", kind)
        yield ApiEndpoint("PATCH", f"{one}/status", "patch_status", kind)
    if "scale" in kind.subresources:
        yield ApiEndpoint("GET", f"{one}/scale", "get_scale", kind)
        yield ApiEndpoint("PATCH", f"{one}/scale", "patch_scale", kind)
    if kind is POD:
        yield ApiEndpoint("POST", f"{one}/binding", "bind", kind)
        yield ApiEndpoint("POST", f"{one}/eviction", "evict", kind)
