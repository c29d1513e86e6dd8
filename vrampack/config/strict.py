"""Strict YAML: unknown and doubled keys are errors, every fault names file and path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from vrampack.config.errors import SettingsError


class StrictModel(BaseModel):
    """A mapping of which every key is known."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


_Model = TypeVar("_Model", bound=StrictModel)


def load_configuration(
    model: type[_Model], kind: str, path: Path | None, overrides: Mapping[str, str] | None = None
) -> _Model:
    """The configuration of `path`, or the defaults of `kind` without one. `overrides` are fields of `listen`.

    Raises `SettingsError` naming the path of every fault.
    """
    document: dict[str, Any] = {"apiVersion": "vrampack.dev/v1", "kind": kind}
    where = "command line"
    if path is not None:
        where = str(path)
        document = _read_yaml(path)
    if overrides:
        listen = document.get("listen", {})
        document["listen"] = {**listen, **overrides} if isinstance(listen, dict) else listen
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise SettingsError("\n".join(f"{where}: {_fault(fault)}" for fault in error.errors())) from error


def _fault(fault: Mapping[str, Any]) -> str:
    path = ".".join(str(part) for part in fault["loc"])
    message = str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        message = "no such field; look for a misspelling in docs/configuration.md"
    return f"{path}: {message}" if path else message


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        doubled = list(_doubled_keys(yaml.compose(text, Loader=yaml.SafeLoader)))
        document = yaml.safe_load(text)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        # PyYAML's own readers of dates, numbers and bools let whatever they stumble over out.
        raise SettingsError(f"{path}: not YAML: {error}") from error
    if doubled:
        raise SettingsError("\n".join(f"{path}: {fault}" for fault in doubled))
    if not isinstance(document, dict):
        raise SettingsError(f"{path}: not a mapping; begin with apiVersion: vrampack.dev/v1")
    return document


def _doubled_keys(node: yaml.Node | None, path: str = "") -> Iterator[str]:
    """Keys that stand twice: the last one silently winning is how settings get lost."""
    if not isinstance(node, yaml.MappingNode):
        return
    seen = set()
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode):
            inner = f"{path}.{key.value}" if path else key.value
            if key.value in seen:
                yield f"{inner}: stands twice, the second time in line {key.start_mark.line + 1}"
            seen.add(key.value)
            yield from _doubled_keys(value, inner)
