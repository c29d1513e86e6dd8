"""As much of JSON Schema as docs/schemas uses; a keyword it does not know is an error, so that nothing goes unchecked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]  # Any: JSON

IGNORED = {"$schema", "$id", "$defs", "title", "description"}
KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}


def find_schema_faults(value: object, schema: Schema, root: Schema, path: str = "$") -> Iterator[str]:
    """What is wrong with `value`, each with its path."""
    for keyword, wanted in schema.items():
        if keyword in IGNORED:
            continue
        if keyword == "$ref":
            yield from find_schema_faults(value, root["$defs"][wanted.removeprefix("#/$defs/")], root, path)
        elif keyword == "type":
            kinds = [wanted] if isinstance(wanted, str) else wanted
            if not any(_is_of(value, kind) for kind in kinds):
                yield f"{path}: not of type {wanted}"
                return
        else:
            yield from _CHECKS[keyword](value, schema, root, path)


def _is_of(value: object, kind: str) -> bool:
    return isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _const(value: object, schema: Schema, _root: Schema, path: str) -> Iterator[str]:
    if value != schema["const"]:
        yield f"{path}: not {schema['const']!r}"


def _enum(value: object, schema: Schema, _root: Schema, path: str) -> Iterator[str]:
    if value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"


def _minimum(value: Any, schema: Schema, _root: Schema, path: str) -> Iterator[str]:  # noqa: ANN401 - a number, by its type
    if value < schema["minimum"]:
        yield f"{path}: less than {schema['minimum']}"


def _required(value: Any, schema: Schema, _root: Schema, path: str) -> Iterator[str]:  # noqa: ANN401 - an object, by its type
    yield from (f"{path}.{key}: missing" for key in schema["required"] if key not in value)


def _properties(value: Any, schema: Schema, root: Schema, path: str) -> Iterator[str]:  # noqa: ANN401 - an object, by its type
    for key, inner in schema["properties"].items():
        if key in value:
            yield from find_schema_faults(value[key], inner, root, f"{path}.{key}")


def _additional(value: Any, schema: Schema, _root: Schema, path: str) -> Iterator[str]:  # noqa: ANN401 - an object, by its type
    yield from (f"{path}.{key}: not in the schema" for key in value if key not in schema["properties"])


def _items(value: Any, schema: Schema, root: Schema, path: str) -> Iterator[str]:  # noqa: ANN401 - a list, by its type
    for at, item in enumerate(value):
        yield from find_schema_faults(item, schema["items"], root, f"{path}[{at}]")


_CHECKS = {
    "const": _const,
    "enum": _enum,
    "minimum": _minimum,
    "required": _required,
    "properties": _properties,
    "additionalProperties": _additional,
    "items": _items,
}
