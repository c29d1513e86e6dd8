"""The two patch forms that clients send. Both build a new object and leave the old one unchanged.

The directives of a strategic patch are those that kubectl writes: `$patch`, `$retainKeys`, `$setElementOrder/...`
and `$deleteFromPrimitiveList/...`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from vrampack.simulator.resource_kinds import Object

PatchFunction: TypeAlias = Callable[[Object, Object], Object]
Items: TypeAlias = Sequence[Any]  # Any: items of whatever list, whole objects or plain values

MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "ports": "containerPort",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Lists whose items a strategic merge joins, by the key field of their items."""
MERGED_PRIMITIVE_LISTS = ("finalizers",)
"""Lists of plain values that a strategic merge joins. Every other list is replaced as a whole."""

ORDER_DIRECTIVE, DELETE_DIRECTIVE = "$setElementOrder/", "$deleteFromPrimitiveList/"


def apply_merge_patch(old: Object, patch: Object) -> Object:
    """Apply a JSON merge patch (RFC 7386): null removes a key, objects are merged, everything else replaces."""
    result = dict(old)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = apply_merge_patch(_object(result.get(key)), value)
        else:
            result[key] = value
    return result


def apply_strategic_merge_patch(old: Object, patch: Object) -> Object:
    """Like `apply_merge_patch`, but joins the items of some lists, and follows directives."""
    if patch.get("$patch") in ("replace", "delete"):
        old = {}
    result = _keep_retained_keys(old, patch)
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = apply_strategic_merge_patch(_object(result.get(key)), value)
        elif isinstance(value, list):
            result[key] = _merge_list(key, result.get(key) or [], value)
        else:
            result[key] = value
    return _apply_element_order(_delete_listed_values(result, patch), patch)


def _object(value: object) -> Object:
    return value if isinstance(value, dict) else {}


def _keep_retained_keys(old: Object, patch: Object) -> Object:
    keys = patch.get("$retainKeys")
    return dict(old) if keys is None else {key: value for key, value in old.items() if key in keys}


def _delete_listed_values(result: Object, patch: Object) -> Object:
    for directive, values in patch.items():
        key = directive.removeprefix(DELETE_DIRECTIVE)
        if directive.startswith(DELETE_DIRECTIVE) and key in result:
            result[key] = [value for value in result[key] if value not in values]
    return result


def _apply_element_order(result: Object, patch: Object) -> Object:
    for directive, order in patch.items():
        key = directive.removeprefix(ORDER_DIRECTIVE)
        if directive.startswith(ORDER_DIRECTIVE) and key in result:
            result[key] = _sort_items(key, result[key], listed=order, before=result[key])
    return result


def _merge_list(key: str, old: Items, patch: Items) -> list[Any]:
    if key in MERGED_PRIMITIVE_LISTS:
        return [*old, *(value for value in patch if value not in old)]
    if key not in MERGE_KEYS:
        return list(patch)
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    by_key = {_read_merge_key(key, item): item for item in old}
    for item in patch:
        if item.get("$patch") == "delete":
            by_key.pop(_read_merge_key(key, item), None)
        else:
            by_key[_read_merge_key(key, item)] = apply_strategic_merge_patch(
                by_key.get(_read_merge_key(key, item), {}), item
            )
    return _sort_items(key, list(by_key.values()), listed=patch, before=old)


def _sort_items(key: str, items: Items, *, listed: Items, before: Items) -> list[Any]:
    """Listed items in the order of the list; each other item stays before the first listed one that it preceded."""
    wanted = [_read_merge_key(key, item) for item in listed]
    known = [_read_merge_key(key, item) for item in before]
    mine = sorted(
        (item for item in items if _read_merge_key(key, item) in wanted),
        key=lambda item: wanted.index(_read_merge_key(key, item)),
    )
    others = [item for item in items if _read_merge_key(key, item) not in wanted]
    result = []
    for item in mine:
        place = known.index(_read_merge_key(key, item)) if _read_merge_key(key, item) in known else -1
        while others and known.index(_read_merge_key(key, others[0])) < place:
            result.append(others.pop(0))
        result.append(item)
    return [*result, *others]


def _read_merge_key(key: str, item: Any) -> Any:  # noqa: ANN401 - whatever the list holds
    return item.get(MERGE_KEYS[key]) if key in MERGE_KEYS and isinstance(item, dict) else item
