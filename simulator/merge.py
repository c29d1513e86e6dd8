"""The two patch forms that clients of ours send. Both build a new object and leave the old one alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from simulator.kinds import Object

Merge: TypeAlias = Callable[[Object, Object], Object]

LIST_KEYS = {"conditions": "type", "addresses": "type", "containers": "name", "initContainers": "name"}
"""Lists whose items a strategic merge joins by this field; every other list is replaced as a whole."""


def merge(old: Object, patch: Object) -> Object:
    """A JSON merge patch (RFC 7386): null takes a key away, objects are merged, all else replaces."""
    return _merged(old, patch, list_keys={})


def strategic_merge(old: Object, patch: Object) -> Object:
    """As `merge`, and the items of some lists are joined. Directives (`$patch`, ...) are not known here."""
    return _merged(old, patch, list_keys=LIST_KEYS)


def _merged(old: Object, patch: Object, *, list_keys: dict[str, str]) -> Object:
    result = dict(old)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            before = result.get(key)
            result[key] = _merged(before if isinstance(before, dict) else {}, value, list_keys=list_keys)
        elif isinstance(value, list) and key in list_keys:
            result[key] = _joined(result.get(key) or [], value, field=list_keys[key])
        else:
            result[key] = value
    return result


def _joined(old: list[Any], patch: list[Any], *, field: str) -> list[Any]:  # Any: items of any list
    """Patched items first and in the patch's order, as the real server leaves them."""
    before = {item[field]: item for item in old}
    patched = [strategic_merge(before.pop(item[field], {}), item) for item in patch]
    return [*patched, *before.values()]
