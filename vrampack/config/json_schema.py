"""The JSON Schema of a file that people write: built from its model, shipped for editors, and used for the texts of faults.

https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

JsonSchema = Mapping[str, Any]


@lru_cache(maxsize=8)
def get_model_schema(model: type[BaseModel]) -> JsonSchema:
    """The schema of a model, cached: it takes 20 ms, and a reload needs it again for every bad file."""
    return model.model_json_schema()


def build_file_schema(model: type[BaseModel], file_name: str) -> str:
    """The content of the file under docs/schemas that describes this model."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://vrampack.dev/schemas/{file_name}",
        **get_model_schema(model),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def find_field_schema(schema: JsonSchema, path: Sequence[str | int]) -> JsonSchema | None:
    """The schema of the field at this path, references resolved; None if there is none."""
    field: JsonSchema | None = _resolve_reference(schema, schema)
    for part in path:
        if field is None:
            return None
        field = next((inner for each in _list_choices(field, schema) if (inner := _get_inner(each, part))), None)
        field = None if field is None else _resolve_reference(field, schema)
    return field


def list_field_names(field: JsonSchema, schema: JsonSchema) -> list[str]:
    """The keys of a mapping, in the order of its model."""
    return [name for each in _list_choices(field, schema) for name in each.get("properties", ())]


def find_enclosing_field(schema: JsonSchema, name: str) -> str | None:
    """The path of the outermost mapping with a field of this name, empty for the document; None if there are none or several."""
    found = sorted(_list_enclosing_fields(schema, name, schema, ()), key=len)
    is_clear = found and (len(found) == 1 or len(found[0]) < len(found[1]))
    return ".".join(found[0]) if is_clear else None


def _list_enclosing_fields(
    field: JsonSchema, name: str, schema: JsonSchema, within: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    for choice in _list_choices(field, schema):
        for key, inner in choice.get("properties", {}).items():
            if key == name:
                yield within
            yield from _list_enclosing_fields(inner, name, schema, (*within, key))


def describe_allowed_values(field: JsonSchema, schema: JsonSchema) -> str:
    """What a field may be, in words: `a whole number from 1 to 1048576`."""
    choices = _list_choices(field, schema)
    if len(choices) > 1:
        return ", or ".join(describe_allowed_values(each, schema) for each in choices)
    return _describe_choice(choices[0], schema)


def _describe_choice(field: JsonSchema, schema: JsonSchema) -> str:
    if "const" in field:
        return str(field["const"])
    if "enum" in field:
        return f"one of {', '.join(map(str, field['enum']))}"
    match field.get("type"):
        case "integer":
            text = f"a whole number{_describe_bounds(field)}"
        case "number":
            text = f"a number{_describe_bounds(field)}"
        case "boolean":
            text = "true or false"
        case "array":
            text = _describe_list(field, schema)
        case "object":
            text = _describe_mapping(field, schema)
        case _:
            text = _describe_text(field)
    return text


def _describe_list(field: JsonSchema, schema: JsonSchema) -> str:
    most = f" of at most {field['maxItems']}" if "maxItems" in field else ""
    return f"a list{most}, each entry {describe_allowed_values(field['items'], schema)}"


def _describe_bounds(field: JsonSchema) -> str:
    least, above, most = field.get("minimum"), field.get("exclusiveMinimum"), field.get("maximum")
    if least is not None:
        return f" from {_format_number(least)}" + (" up" if most is None else f" to {_format_number(most)}")
    if above is not None:
        return f" above {_format_number(above)}" + ("" if most is None else f", up to {_format_number(most)}")
    return "" if most is None else f" up to {_format_number(most)}"


def _format_number(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def _describe_mapping(field: JsonSchema, schema: JsonSchema) -> str:
    if "properties" in field:
        return f"a mapping with the keys {', '.join(field['properties'])}"
    values = _get_value_schema(field)
    return f"a mapping, each value {describe_allowed_values(values, schema)}" if values else "a mapping"


def _describe_text(field: JsonSchema) -> str:
    if field.get("format") == "path":
        return "a path"
    examples = field.get("examples")
    if examples:
        return f"a text such as {examples[0]}"
    return "a text that is not empty" if field.get("minLength") else "a text"


def _list_choices(field: JsonSchema, schema: JsonSchema) -> list[JsonSchema]:
    """The alternatives for a value, without null, which means the same as leaving the field out."""
    field = _resolve_reference(field, schema)
    choices = [_resolve_reference(each, schema) for each in field.get("anyOf", [field])]
    return [each for each in choices if each.get("type") != "null"]


def _resolve_reference(field: JsonSchema, schema: JsonSchema) -> JsonSchema:
    name = field.get("$ref")
    if name is None:
        return field
    definition: JsonSchema = schema["$defs"][str(name).removeprefix("#/$defs/")]
    return definition


def _get_inner(field: JsonSchema, part: str | int) -> JsonSchema | None:
    inner: JsonSchema | None = field.get("items") if isinstance(part, int) else field.get("properties", {}).get(part)
    return inner or _get_value_schema(field)


def _get_value_schema(field: JsonSchema) -> JsonSchema | None:
    """The schema of the values of a mapping whose keys may have any name, or match a pattern."""
    values = next(iter(field.get("patternProperties", {}).values()), field.get("additionalProperties"))
    return values if isinstance(values, Mapping) else None
