"""How any file that people write is read: the rules that all kinds share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from vrampack.config.errors import SettingsError
from vrampack.config.strict import StrictModel, load_configuration
from vrampack.config.yaml_document import YamlDocument


class StrictListen(StrictModel):
    """What flags may override."""

    health: str = "a"
    verbs: str = "b"


class Example(StrictModel):
    """A document of another kind than the product's own."""

    apiVersion: Literal["vrampack.dev/v1"]  # noqa: N815 - Kubernetes' own spelling
    kind: Literal["Example"]
    listen: StrictListen = StrictListen()
    number: int = 1


def example(folder: Path, text: str, **overrides: str) -> Example:
    path = folder / "example.yaml"
    path.write_text(f"apiVersion: vrampack.dev/v1\nkind: Example\n{text}")
    return load_configuration(Example, "Example", path, {f"listen.{name}": value for name, value in overrides.items()})


def test_without_a_file_the_defaults_of_the_kind_apply() -> None:
    assert load_configuration(Example, "Example", None) == Example(apiVersion="vrampack.dev/v1", kind="Example")


def test_an_override_changes_only_its_field(tmp_path: Path) -> None:
    listen = example(tmp_path, "listen: {health: x, verbs: y}", health="z").listen
    assert (listen.health, listen.verbs) == ("z", "y")


def test_an_override_does_not_hide_an_invalid_section(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="listen: found 3; allowed: a mapping with the keys health, verbs"):
        example(tmp_path, "listen: 3", health="z")


def test_one_kind_is_not_read_as_another(tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text("apiVersion: vrampack.dev/v1\nkind: Other\n")
    with pytest.raises(SettingsError, match=r"other\.yaml:2: kind: found the text 'Other'; allowed: Example"):
        load_configuration(Example, "Example", path)


def test_settings_are_immutable(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="frozen"):
        example(tmp_path, "").number = 2


def test_all_duplicate_keys_are_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as raised:
        example(tmp_path, "number: 1\nnumber: 2\nlisten:\n  health: a\n  health: b\n")
    assert str(raised.value).splitlines() == [
        f"{tmp_path}/example.yaml:4: number: is given twice, first in line 3; remove one",
        f"{tmp_path}/example.yaml:7: listen.health: is given twice, first in line 6; remove one",
    ]


class CountedList(list[Any]):  # Any: YAML's pairs of nodes
    """Counts what is taken out of it, from either end."""

    visits = 0

    def __iter__(self) -> Iterator[Any]:
        for each in super().__iter__():
            self.visits += 1
            yield each

    def __reversed__(self) -> Iterator[Any]:
        for each in super().__reversed__():
            self.visits += 1
            yield each


def test_lines_of_many_fields_are_found_in_one_pass() -> None:
    """A file of 65,000 wrong keys took more than a minute of CPU while each look began at the end of the file."""
    text = "".join(f"k{number}: 1\n" for number in range(500))
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    root.value = fields = CountedList(root.value)
    document = YamlDocument({}, root)
    assert [document.find_line((f"k{number}",)) for number in range(500)] == list(range(1, 501))
    assert fields.visits == 500
