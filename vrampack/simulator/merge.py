"""The two patch forms that clients send. Both build a new object and leave the old one alone.

The directives of a strategic patch are those that kubectl writes: `$patch`, `$retainKeys`, `$setElementOrder/...`
and `$deleteFromPrimitiveList/...`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from vrampack.simulator.kinds import Object

Merge: TypeAlias = Callable[[Object, Object], Object]
Items: TypeAlias = Sequence[Any]  # Any: items of whatever list, whole objects or plain values

LIST_KEYS = {
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
"""Lists whose items a strategic merge joins by this field."""
VALUE_LISTS = ("finalizers",)
"""Lists of plain values that a strategic merge joins. Every other list is replaced as a whole."""

ORDER, DELETE = "$setElementOrder/", "$deleteFromPrimitiveList/"


def merge(old: Object, patch: Object) -> Object:
    """A JSON merge patch (RFC 7386): null takes a key away, objects are merged, all else replaces."""
    result = dict(old)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merge(_object(result.get(key)), value)
        else:
            result[key] = value
    return result


def strategic_merge(old: Object, patch: Object) -> Object:
    """As `merge`, but the items of some lists are joined, and directives say what else to do."""
    if patch.get("$patch") in ("replace", "delete"):
        old = {}
    result = _retained(old, patch)
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = strategic_merge(_object(result.get(key)), value)
        elif isinstance(value, list):
            result[key] = _merged_list(key, result.get(key) or [], value)
        else:
            result[key] = value
    return _ordered(_shortened(result, patch), patch)


def _object(value: object) -> Object:
    return value if isinstance(value, dict) else {}


def _retained(old: Object, patch: Object) -> Object:
    keys = patch.get("$retainKeys")
    return dict(old) if keys is None else {key: value for key, value in old.items() if key in keys}


def _shortened(result: Object, patch: Object) -> Object:
    for directive, values in patch.items():
        key = directive.removeprefix(DELETE)
        if directive.startswith(DELETE) and key in result:
            result[key] = [value for value in result[key] if value not in values]
    return result


def _ordered(result: Object, patch: Object) -> Object:
    for directive, order in patch.items():
        key = directive.removeprefix(ORDER)
        if directive.startswith(ORDER) and key in result:
            result[key] = _in_order(key, result[key], listed=order, before=result[key])
    return result


def _merged_list(key: str, old: Items, patch: Items) -> list[Any]:
    if key in VALUE_LISTS:
        return [*old, *(value for value in patch if value not in old)]
    if key not in LIST_KEYS:
        return list(patch)
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    by_key = {_identity(key, item): item for item in old}
    for item in patch:
        if item.get("$patch") == "delete":
            by_key.pop(_identity(key, item), None)
        else:
            by_key[_identity(key, item)] = strategic_merge(by_key.get(_identity(key, item), {}), item)
    return _in_order(key, list(by_key.values()), listed=patch, before=old)


def _in_order(key: str, items: Items, *, listed: Items, before: Items) -> list[Any]:
    """Listed items in the order of the list; each other one ahead of the first listed one that it was ahead of."""
    wanted = [_identity(key, item) for item in listed]
    known = [_identity(key, item) for item in before]
    mine = sorted(
        (item for item in items if _identity(key, item) in wanted), key=lambda item: wanted.index(_identity(key, item))
    )
    others = [item for item in items if _identity(key, item) not in wanted]
    result = []
    for item in mine:
        place = known.index(_identity(key, item)) if _identity(key, item) in known else -1
        while others and known.index(_identity(key, others[0])) < place:
            result.append(others.pop(0))
        result.append(item)
    return [*result, *others]


def _identity(key: str, item: Any) -> Any:  # noqa: ANN401 - whatever the list holds
    return item.get(LIST_KEYS[key]) if key in LIST_KEYS and isinstance(item, dict) else item
