"""Strict YAML: unknown and duplicate keys are errors, and every fault names its line and what is allowed there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from vrampack.config.errors import SettingsError
from vrampack.config.faults import (
    MAX_SHOWN_FAULTS,
    FieldFault,
    FieldPath,
    UnreadableDocumentError,
    describe_fault,
    format_path,
    get_fault_path,
)
from vrampack.config.json_schema import get_model_schema
from vrampack.config.kinds import find_wrong_kind
from vrampack.config.yaml_document import YamlDocument, read_yaml_document

COMMAND_LINE = "command line"


class StrictModel(BaseModel):
    """A mapping that allows only known keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


_Model = TypeVar("_Model", bound=StrictModel)
Overrides = Mapping[str, str | float]
"""Flags that win over the file, by field: `listen.verbs`. Each is in a section of the file."""


def load_configuration(model: type[_Model], kind: str, path: Path | None, overrides: Overrides | None = None) -> _Model:
    """Read the configuration in `path`, or use the defaults of `kind` without one.

    Raises `SettingsError` naming file, line and path of every fault.
    """
    document = None if path is None else read_document(path)
    return validate_configuration(model, kind, document, str(path), overrides or {})


def read_document(path: Path) -> YamlDocument:
    """The single mapping in this file. Raises `SettingsError` naming the line if the file is not one."""
    try:
        return read_yaml_document(path)
    except UnreadableDocumentError as error:
        raise SettingsError(_format_faults(str(path), [error.fault])) from error


def validate_configuration(
    model: type[_Model], kind: str, document: YamlDocument | None, where: str, overrides: Overrides
) -> _Model:
    """The configuration in a document that was read from `where`, or the defaults without one.

    Raises `SettingsError` as `load_configuration` does.
    """
    values: dict[str, Any] = {"apiVersion": "vrampack.dev/v1", "kind": kind}
    doubled: list[FieldFault] = []
    if document is not None:
        values, doubled = dict(document.values), document.list_doubled_keys()
        wrong_kind = find_wrong_kind(values.get("kind"), kind)
        if wrong_kind is not None:
            fault = FieldFault(document.find_line(("kind",)), ("kind",), wrong_kind)
            raise SettingsError(_format_faults(where, [fault]))
    for field, value in overrides.items():
        section, _, name = field.partition(".")
        given = values.get(section, {})
        values[section] = {**given, name: value} if isinstance(given, dict) else given
    try:
        configuration = model.model_validate(values)
    except ValidationError as error:
        faults = [*doubled, *_list_faults(error, model, document, overrides)]
        raise SettingsError(_format_faults(where, faults)) from error
    if doubled:
        raise SettingsError(_format_faults(where, doubled))
    return configuration


def _list_faults(
    error: ValidationError, model: type[BaseModel], document: YamlDocument | None, overrides: Overrides
) -> Iterator[FieldFault]:
    """The faults, sorted. Those beyond the number shown get no text, because suggestions take a while to compute."""
    schema = get_model_schema(model)
    found = [(*_find_place(get_fault_path(each), document, overrides), each) for each in error.errors()]
    found.sort(key=lambda fault: _get_order(fault[0], fault[1]))
    for index, (line, path, each) in enumerate(found):
        yield FieldFault(line, path, describe_fault(each, schema) if index < MAX_SHOWN_FAULTS else "")


def _find_place(path: FieldPath, document: YamlDocument | None, overrides: Overrides) -> tuple[int | None, FieldPath]:
    is_flag = document is None or format_path(path[:2]) in overrides
    return None if document is None or is_flag else document.find_line(path), path


def _get_order(line: int | None, path: FieldPath) -> tuple[int, str]:
    return line or 0, format_path(path)


def _format_faults(where: str, faults: list[FieldFault]) -> str:
    """One line for each fault, in the order of the file; a fault without a line number is on the command line."""
    ordered = sorted(faults, key=lambda fault: _get_order(fault.line, fault.path))
    shown = [_format_fault(where, fault) for fault in ordered[:MAX_SHOWN_FAULTS]]
    if len(ordered) > MAX_SHOWN_FAULTS:
        shown.append(f"{where}: and {len(ordered) - MAX_SHOWN_FAULTS} more faults")
    return "\n".join(shown)


def _format_fault(where: str, fault: FieldFault) -> str:
    place = f"{where}:{fault.line}"
    if fault.line is None:
        place = COMMAND_LINE if fault.path else where
    return ": ".join([place, *([format_path(fault.path)] if fault.path else []), fault.text])
