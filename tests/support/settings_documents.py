"""A settings document beside its documentation: the fields of one, and the rows of a table of the other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from extender.policy_settings import WEIGHT_MODELS
from policies.outlook import PolicyWeights
from vrampack.config.errors import SettingsError


def list_field_paths(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """`listen.verbs` and so on: every field that holds no further fields."""
    for name, field in model.model_fields.items():
        if field.annotation is PolicyWeights:
            for weights in WEIGHT_MODELS.values():
                yield from list_field_paths(weights, f"{path}{name}.")
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from list_field_paths(field.annotation, f"{path}{name}.")
        else:
            yield path + name


def assert_fields_documented(model: type[BaseModel], text: str) -> None:
    """Each row of the text's tables is a field, and each field has a row."""
    rows = re.findall(r"^\| `([A-Za-z_.]+)` \|", text, re.MULTILINE)
    assert sorted(rows) == sorted(list_field_paths(model))


def read_value(document: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401 - a default, of whatever type the field has
    value: Any = document
    for part in path.split("."):
        value = value[part]
    return value


def assert_fault(raised: pytest.ExceptionInfo[SettingsError], file: Path, fault: str) -> None:
    """It names the file, and says what is wrong where."""
    assert re.match(rf"{re.escape(str(file))}(:\d+)?: ", str(raised.value))
    assert fault in str(raised.value)
