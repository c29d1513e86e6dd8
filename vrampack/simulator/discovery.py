"""What the server tells about itself: its version, its kinds, and as much of a schema as kubectl needs.

Discovery is served in its plain form; whoever asks for the aggregated one also takes this. The schema names no
field of any object: it says that the server checks them itself (`fieldValidation`), so that kubectl does not.
"""

from __future__ import annotations

from vrampack.simulator.kinds import KINDS, POD, Kind, Object
from vrampack.simulator.surface import collection

VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0+embedded", "platform": "embedded"}
GROUP = {
    "name": "apps",
    "versions": [{"groupVersion": "apps/v1", "version": "v1"}],
    "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"},
}
VERBS = ("create", "delete", "get", "list", "patch", "watch")
OPTIONS = ("dryRun", "fieldManager", "fieldValidation")
"""Query parameters of writes that kubectl looks for in the schema before it sends them."""


def versions() -> Object:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def groups() -> Object:
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [GROUP]}


def group() -> Object:
    return {"kind": "APIGroup", "apiVersion": "v1", **GROUP}


def resources(root: str) -> Object:
    """The kinds below `/api/v1` or `/apis/apps/v1`, each followed by its subresources."""
    kinds = sorted((kind for kind in KINDS.values() if kind.root == root), key=lambda kind: kind.plural)
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": kinds[0].group_version,
        "resources": [entry for kind in kinds for entry in (_resource(kind), *_subresources(kind))],
    }


def schemas() -> Object:
    """Where the schema of each group lies."""
    roots = sorted({kind.root for kind in KINDS.values()})
    return {"paths": {root.lstrip("/"): {"serverRelativeURL": f"/openapi/v3{root}"} for root in roots}}


def schema(root: str) -> Object:
    paths = {}
    for kind in KINDS.values():
        if kind.root == root:
            paths[collection(kind)] = {"post": _operation(kind, "post")}
            paths[collection(kind) + "/{name}"] = {
                "patch": _operation(kind, "patch"),
                "delete": _operation(kind, "delete"),
            }
    return {
        "openapi": "3.0.0",
        "info": {"title": "vrampack embedded cluster", "version": VERSION["gitVersion"]},
        "paths": paths,
    }


def _resource(kind: Kind) -> Object:
    entry = {
        "name": kind.plural,
        "singularName": kind.name.lower(),
        "namespaced": kind.is_namespaced,
        "kind": kind.name,
        "verbs": list(VERBS),
        "shortNames": [kind.short_name],
    }
    return entry | ({"categories": ["all"]} if kind.is_in_all else {})


def _subresources(kind: Kind) -> list[Object]:
    entries = []
    if kind is POD:
        entries.append(_subresource(kind, "binding", ["create"], kind="Binding"))
        eviction = _subresource(kind, "eviction", ["create"], kind="Eviction")
        entries.append(eviction | {"group": "policy", "version": "v1"})
    if "scale" in kind.subresources:
        scale = _subresource(kind, "scale", ["get", "patch"], kind="Scale")
        entries.append(scale | {"group": "autoscaling", "version": "v1"})
    if "status" in kind.subresources:
        entries.append(_subresource(kind, "status", ["get", "patch"], kind=kind.name))
    return entries


def _subresource(of: Kind, name: str, verbs: list[str], *, kind: str) -> Object:
    return {
        "name": f"{of.plural}/{name}",
        "singularName": "",
        "namespaced": of.is_namespaced,
        "kind": kind,
        "verbs": verbs,
    }


def _operation(kind: Kind, method: str) -> Object:
    options = OPTIONS if method != "delete" else ("dryRun",)
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in options]
    meaning = {"group": kind.group, "kind": kind.name, "version": "v1"}
    return {
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": method,
        "x-kubernetes-group-version-kind": meaning,
    }
