"""Replaces the names of namespaces, nodes and pods, so that a snapshot can be shown to people who must not know them.

The order of the names stays, because it breaks ties. Uids of pods and cards, models, and the values of kept labels stay too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vrampack.simulator.resource_kinds import Object


def rename_objects(objects: Sequence[Object]) -> list[Object]:
    """Nodes become `node-1`, namespaces `ns-1`, pods `pod-1` and so on, wherever they are named."""
    nodes = _number_names("node", (each["metadata"]["name"] for each in objects if each["kind"] == "Node"))
    pods = [each for each in objects if each["kind"] == "Pod"]
    namespaces = _number_names("ns", (each["metadata"].get("namespace") or "default" for each in pods))
    pod_names = _number_names("pod", (_get_full_name(each) for each in pods))
    return [_rename(each, nodes, namespaces, pod_names) for each in objects]


def _number_names(prefix: str, names: Iterable[str]) -> Mapping[str, str]:
    ordered = sorted(set(names))
    width = len(str(len(ordered)))
    return {name: f"{prefix}-{at:0{width}}" for at, name in enumerate(ordered, 1)}


def _get_full_name(pod: Object) -> str:
    return f"{pod['metadata'].get('namespace') or 'default'}/{pod['metadata']['name']}"


def _rename(item: Object, nodes: Mapping[str, str], namespaces: Mapping[str, str], pods: Mapping[str, str]) -> Object:
    metadata = item["metadata"]
    if item["kind"] == "Node":
        return {**item, "metadata": _replace_fields(metadata, ("name", "labels"), nodes)}
    if item["kind"] == "Namespace":
        return {**item, "metadata": _replace_fields(metadata, ("name",), namespaces)}
    names = {"name": pods[_get_full_name(item)], "namespace": namespaces[metadata.get("namespace") or "default"]}
    return {
        **item,
        "metadata": {**metadata, **names},
        "spec": _replace_fields(item.get("spec") or {}, ("nodeName", "nodeSelector", "affinity"), nodes),
        "status": _replace_fields(item.get("status") or {}, ("nominatedNodeName",), nodes),
    }


def _replace_fields(half: Object, fields: Sequence[str], names: Mapping[str, str]) -> Object:
    """Replace names in these fields: labels (`kubernetes.io/hostname`) and selectors may name nodes too."""
    return {key: _replace_texts(value, names) if key in fields else value for key, value in half.items()}


def _replace_texts(value: Any, names: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return {key: _replace_texts(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [_replace_texts(each, names) for each in value]
    return names.get(value, value) if isinstance(value, str) else value
