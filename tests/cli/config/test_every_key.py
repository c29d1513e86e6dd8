"""Every key of every file, misspelt, of another type, out of bounds and wrongly indented: line, path and what is allowed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from pydantic import BaseModel

from extender.policy_settings import WEIGHT_MODELS
from policies.outlook import PolicyWeights
from tests.cli.config.field_table import FILES, FieldRow
from vrampack.cli.config.file_kinds import FILE_KINDS
from vrampack.cli.config.main import main

FIELDS = [(reader, path) for reader, table in FILES.items() for path in table]
MODELS = {kind.reader: kind.model for kind in FILE_KINDS.values()}


@dataclass(frozen=True)
class BrokenFile:
    """A file with one fault, and what must be reported about it."""

    text: str
    line: int
    path: str
    says: str


class FileWriter:
    """Writes good files of one kind around one field, whose line it knows."""

    def __init__(self, reader: str, path: str, random: Random) -> None:
        self.table: Mapping[str, FieldRow] = FILES[reader]
        self.path = path
        self.name = path.rpartition(".")[2]
        self.section = path.rpartition(".")[0]
        self._random = random

    def write_file(self, key: str, value: str, *, indent: int | None = None) -> tuple[str, int]:
        """The text, and the line of the field; the lines above it differ each time."""
        lines = ["# a comment"] * self._random.randint(0, 3)
        lines += [f"{name}: {self.table[name].good}" for name in ("apiVersion", "kind") if name != self.path]
        if "tls" in self.table and self.table is FILES["admission"] and not self.path.startswith("tls"):
            lines.append("tls: {cert_file: /a, key_file: /b}")
        parts = self.section.split(".") if self.section else []
        for depth, part in enumerate(parts):
            lines.append(f"{'  ' * depth}{part}:")
            if self.section == "metrics.tls" and part == "metrics":  # TLS needs a listener of its own
                lines.append(f"  address: {self.table['metrics.address'].good}")
        depth = len(parts)
        lines += [f"{'  ' * depth}{each}" for each in self._list_siblings()]
        lines += [""] * self._random.randint(0, 2)
        lines.append(f"{'  ' * depth if indent is None else ' ' * indent}{key}: {value}")
        return "\n".join(lines) + "\n", len(lines)

    def _list_siblings(self) -> Iterator[str]:
        """All other fields of a section, so that rules about several of them are kept."""
        for path, row in self.table.items():
            section, _, name = path.rpartition(".")
            if self.section and section == self.section and path != self.path and row.good:
                yield f"{name}: {row.good}"

    def list_names(self) -> str:
        names = [path.rpartition(".") for path in self.table]
        return ", ".join(name for section, _, name in names if section == self.section)


def _list_typos(name: str) -> set[str]:
    middle = len(name) // 2
    swapped = name[: middle - 1] + name[middle] + name[middle - 1] + name[middle + 1 :]
    typos = {name[:middle] + name[middle + 1 :], name + name[-1], name[:1] + "x" + name[1:], swapped, name + "s"}
    return typos - {name}


def list_broken_files(reader: str, path: str) -> Iterator[BrokenFile]:
    """One for each mutation of this field."""
    writer = FileWriter(reader, path, Random(f"{reader} {path}"))
    row = writer.table[path]
    value = row.good or "{}"
    for typo in sorted(_list_typos(writer.name)):
        text, line = writer.write_file(typo, value)
        said = f"no such field; did you mean {writer.name}? Allowed here: {writer.list_names()}"
        yield BrokenFile(text, line, f"{writer.section}.{typo}".lstrip("."), said)
    for wrong in (*row.wrong, *row.outside):
        text, line = writer.write_file(writer.name, wrong)
        yield BrokenFile(text, line, path, row.allowed)
    depth = 2 * (path.count("."))
    for indent in {depth + 1, depth + 3} if writer.section or path == "kind" else {1, 2}:
        text, line = writer.write_file(writer.name, value, indent=indent)
        if text.splitlines()[line - 2].startswith(" " * max(1, depth)) or not depth:
            yield BrokenFile(text, line, "", "not YAML: ")
    if writer.section:
        text, line = writer.write_file(writer.name, value, indent=0)
        places = [each for each in writer.table if each.rpartition(".")[2] == writer.name]
        if len(places) == 1:
            yield BrokenFile(text, line, writer.name, f"it belongs under {writer.section}.")


def _list_paths(model: type[BaseModel], within: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield within + name
        inner = WEIGHT_MODELS.values() if field.annotation is PolicyWeights else [field.annotation]
        for each in inner:
            if isinstance(each, type) and issubclass(each, BaseModel):
                yield from _list_paths(each, f"{within}{name}.")


@pytest.mark.parametrize("reader", FILES)
def test_the_table_names_every_key(reader: str) -> None:
    assert sorted(FILES[reader]) == sorted(_list_paths(MODELS[reader]))


def test_there_are_more_than_five_hundred_broken_files() -> None:
    assert sum(1 for reader, path in FIELDS for _ in list_broken_files(reader, path)) >= 500


@pytest.mark.parametrize(("reader", "path"), FIELDS)
def test_a_mutated_key_is_named(reader: str, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {tmp_path / f"{number}.yaml": broken for number, broken in enumerate(list_broken_files(reader, path))}
    for file, broken in files.items():
        file.write_text(broken.text)
    assert main(["check", *map(str, files)]) == 1
    said = capsys.readouterr().out.splitlines()
    for file, broken in files.items():
        begin = f"{file}:{broken.line}: {broken.path}"
        faults = [line for line in said if line.startswith(f"{file}:")]
        assert any(each.startswith(begin) and broken.says in each for each in faults), (broken, faults)
    assert all(line.startswith(tuple(f"{file}:" for file in files)) for line in said), said


@pytest.mark.parametrize("reader", FILES)
def test_the_unmutated_files_are_valid(reader: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {path: tmp_path / f"{path}.yaml" for path in FILES[reader]}
    for path, file in files.items():
        writer = FileWriter(reader, path, Random(0))
        file.write_text(writer.write_file(writer.name, writer.table[path].good or "{}")[0])
    main(["check", *map(str, files.values())])
    said = capsys.readouterr().out.splitlines()
    for path, file in files.items():
        if path == "tls" and reader == "admission":  # which may not be empty there
            assert any(line.startswith(f"{file}:") and "give tls.cert_file and tls.key_file" in line for line in said)
        else:
            assert any(line.startswith(f"{file}: good, ") for line in said), said
