"""Faults in a field of a file that people write: the line, the path, what was found and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from typing import Any

from vrampack.config.json_schema import (
    JsonSchema,
    describe_allowed_values,
    find_enclosing_field,
    find_field_schema,
    list_field_names,
)

FieldPath = tuple[str | int, ...]
MAX_SHOWN_FAULTS = 50
"""A file of another kind, or with a wrong indentation, has a fault in every line."""
MAX_QUOTED_LENGTH = 60
DEFAULT_CUTOFF, SLIP_CUTOFF = 0.6, 0.9
"""How near a key is to the one that was meant: usually, and where another place has the very key."""
KEY_MARK = "[key]"
"""How pydantic ends the path if the key itself is wrong."""


@dataclass(frozen=True, slots=True)
class FieldFault:
    """One fault; `line` is None if no line can be named."""

    line: int | None
    path: FieldPath
    text: str


class UnreadableDocumentError(ValueError):
    """The text is not one YAML mapping."""

    def __init__(self, fault: FieldFault) -> None:
        super().__init__(fault.text)
        self.fault = fault


class InvalidFieldError(ValueError):
    """Raised by a validator that sees several fields, to say which of them is wrong."""

    def __init__(self, path: FieldPath, text: str) -> None:
        super().__init__(text)
        self.path = path


def get_fault_path(error: Mapping[str, Any]) -> FieldPath:
    """The path of one of pydantic's errors: that of the validator's field, unless an `InvalidFieldError` names a better one."""
    loc: FieldPath = error["loc"]
    raised = error.get("ctx", {}).get("error")
    if isinstance(raised, InvalidFieldError):
        return (*loc, *raised.path)
    return loc[:-1] if loc and loc[-1] == KEY_MARK else loc


def describe_fault(error: Mapping[str, Any], schema: JsonSchema) -> str:
    """One of pydantic's errors in words: what was found, what is allowed and what was probably meant."""
    path: FieldPath = error["loc"]
    if error["type"] in ("extra_forbidden", "invalid_key"):
        return _describe_unknown_key(path, schema)
    if error["type"] == "value_error":
        return str(error["msg"]).removeprefix("Value error, ")
    if path and path[-1] == KEY_MARK:
        text = str(error["input"])[:MAX_QUOTED_LENGTH]
        return f"found the key {text!r}; allowed: a text of another form"
    field = find_field_schema(schema, path)
    allowed = str(error["msg"]) if field is None else describe_allowed_values(field, schema)
    if error["type"] == "missing":
        return f"missing; allowed: {allowed}"
    return f"found {describe_value(error['input'])}; allowed: {allowed}{_suggest_value(error['input'], field)}"


def describe_value(value: object) -> str:
    """A value of a YAML document as its writer sees it, with texts distinct from numbers."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        quoted = repr(value[:MAX_QUOTED_LENGTH])
        return f"the text {quoted}{'...' if len(value) > MAX_QUOTED_LENGTH else ''}"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, Sequence | set | frozenset):
        return "a list"
    return f"the date {value}" if isinstance(value, date) else str(value)[:MAX_QUOTED_LENGTH]


def _describe_unknown_key(path: FieldPath, schema: JsonSchema) -> str:
    key = str(path[-1])
    enclosing = find_field_schema(schema, path[:-1])
    names = [] if enclosing is None else list_field_names(enclosing, schema)
    elsewhere = find_enclosing_field(schema, key)
    near = get_close_matches(key, names, n=1, cutoff=DEFAULT_CUTOFF if elsewhere is None else SLIP_CUTOFF)
    hint = f"did you mean {near[0]}? " if near else ""
    if elsewhere is not None:
        place = f"under {elsewhere}" if elsewhere else "at the top, not indented"
        hint += f"{'Else it' if near else 'it'} belongs {place}. "
    return f"no such field; {hint}Allowed here: {', '.join(names)}"


def _suggest_value(value: object, field: JsonSchema | None) -> str:
    choices = [] if field is None else [str(each) for each in field.get("enum", ())]
    near = get_close_matches(value, choices, n=1) if isinstance(value, str) else []
    return f"; did you mean {near[0]}?" if near else ""


def format_path(path: FieldPath) -> str:
    """Format a path, such as `listen.verbs` or `policy.allowed.1`."""
    return ".".join(map(str, path))
