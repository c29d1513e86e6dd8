"""Discovery: the server's version, its kinds, and as much of a schema as kubectl needs.

Discovery is served in its plain form, which clients that ask for the aggregated one also accept. The schema names no fields
of objects: it says that the server validates them itself (`fieldValidation`), so that kubectl does not.
"""

from __future__ import annotations

from vrampack.simulator.endpoints import build_collection_path
from vrampack.simulator.resource_kinds import KINDS_BY_PLURAL, POD, Object, ResourceKind

SERVER_VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0+embedded", "platform": "embedded"}
APPS_GROUP = {
    "name": "apps",
    "versions": [{"groupVersion": "apps/v1", "version": "v1"}],
    "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"},
}
REPLICA_SETS: Object = {
    "name": "replicasets",
    "singularName": "replicaset",
    "namespaced": True,
    "kind": "ReplicaSet",
    "verbs": [],
    "shortNames": ["rs"],
}
"""Listed so that kubectl asks for them and learns why they are missing; it can do nothing with a kind without verbs."""
VERBS = ("create", "delete", "get", "list", "patch", "watch")
WRITE_OPTIONS = ("dryRun", "fieldManager", "fieldValidation")
"""Query parameters of writes that kubectl looks for in the schema before it sends them."""


def build_api_versions() -> Object:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def build_api_group_list() -> Object:
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [APPS_GROUP]}


def build_api_group() -> Object:
    return {"kind": "APIGroup", "apiVersion": "v1", **APPS_GROUP}


def build_api_resource_list(path_prefix: str) -> Object:
    """The kinds below `/api/v1` or `/apis/apps/v1`, each followed by its subresources."""
    kinds = sorted(
        (kind for kind in KINDS_BY_PLURAL.values() if kind.path_prefix == path_prefix), key=lambda kind: kind.plural
    )
    entries = [entry for kind in kinds for entry in (_build_resource(kind), *_build_subresources(kind))]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": kinds[0].group_version,
        "resources": [*entries, REPLICA_SETS] if kinds[0].group == "apps" else entries,
    }


def build_openapi_index() -> Object:
    """The location of each group's schema."""
    roots = sorted({kind.path_prefix for kind in KINDS_BY_PLURAL.values()})
    return {"paths": {root.lstrip("/"): {"serverRelativeURL": f"/openapi/v3{root}"} for root in roots}}


def build_openapi_document(path_prefix: str) -> Object:
    paths = {}
    for kind in KINDS_BY_PLURAL.values():
        if kind.path_prefix == path_prefix:
            paths[build_collection_path(kind)] = {"post": _build_operation(kind, "post")}
            paths[build_collection_path(kind) + "/{name}"] = {
                "patch": _build_operation(kind, "patch"),
                "delete": _build_operation(kind, "delete"),
            }
    return {
        "openapi": "3.0.0",
        "info": {"title": "vrampack embedded cluster", "version": SERVER_VERSION["gitVersion"]},
        "paths": paths,
    }


def _build_resource(kind: ResourceKind) -> Object:
    entry = {
        "name": kind.plural,
        "singularName": kind.name.lower(),
        "namespaced": kind.is_namespaced,
        "kind": kind.name,
        "verbs": list(VERBS),
        "shortNames": [kind.short_name],
    }
    return entry | ({"categories": ["all"]} if kind.is_in_category_all else {})


def _build_subresources(kind: ResourceKind) -> list[Object]:
    entries = []
    if kind is POD:
        entries.append(_build_subresource(kind, "binding", ["create"], kind="Binding"))
        eviction = _build_subresource(kind, "eviction", ["create"], kind="Eviction")
        entries.append(eviction | {"group": "policy", "version": "v1"})
    if "scale" in kind.subresources:
        scale = _build_subresource(kind, "scale", ["get", "patch"], kind="Scale")
        entries.append(scale | {"group": "autoscaling", "version": "v1"})
    if "status" in kind.subresources:
        entries.append(_build_subresource(kind, "status", ["get", "patch"], kind=kind.name))
    return entries


def _build_subresource(parent: ResourceKind, name: str, verbs: list[str], *, kind: str) -> Object:
    return {
        "name": f"{parent.plural}/{name}",
        "singularName": "",
        "namespaced": parent.is_namespaced,
        "kind": kind,
        "verbs": verbs,
    }


def _build_operation(kind: ResourceKind, method: str) -> Object:
    options = WRITE_OPTIONS if method != "delete" else ("dryRun",)
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in options]
    meaning = {"group": kind.group, "kind": kind.name, "version": "v1"}
    return {
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": method,
        "x-kubernetes-group-version-kind": meaning,
    }
