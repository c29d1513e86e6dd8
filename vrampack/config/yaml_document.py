"""One YAML mapping with the line of every field, so that faults in files that people write can name lines.

It finds duplicate keys, because the YAML reader silently lets the last one win.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError
from yaml.reader import ReaderError

from vrampack.config.faults import FieldFault, FieldPath, UnreadableDocumentError

INDENTATION_PROBLEMS = ("mapping values are not allowed here", "expected <block end>", "could not find expected ':'")
"""PyYAML's messages for a line with a wrong indentation."""


class YamlDocument:
    """A mapping, with the faults that only its text shows, and the lines of its fields."""

    def __init__(self, values: Mapping[str, Any], root: yaml.Node) -> None:
        self.values = values
        self._root = root
        self._fields: dict[int, dict[str, tuple[int, yaml.Node]]] = {}
        """A cache of the fields of mappings, by the identity of the node: one mapping may have thousands of faults."""

    def find_line(self, path: FieldPath) -> int:
        """The line, from 1, of the field's key or list entry; of the nearest enclosing field if it is missing."""
        node, line = self._root, self._root.start_mark.line + 1
        for part in path:
            found = self._find_child(node, part)
            if found is None:
                break
            line, node = found
        return line

    def list_doubled_keys(self) -> list[FieldFault]:
        """The duplicate keys: if the last one silently won, settings would get lost."""
        return list(_list_doubled_keys(self._root, (), set()))

    def _find_child(self, node: yaml.Node, part: str | int) -> tuple[int, yaml.Node] | None:
        """The line and the value of a field."""
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            return node.value[part].start_mark.line + 1, node.value[part]
        if not isinstance(node, yaml.MappingNode):
            return None
        if id(node) not in self._fields:
            self._fields[id(node)] = _list_fields(node)
        return self._fields[id(node)].get(str(part))


def read_yaml_document(path: Path) -> YamlDocument:
    """The single mapping in this file. Raises `UnreadableDocumentError` naming the line if the file is not one."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UnreadableDocumentError(FieldFault(None, (), str(error.strerror))) from error
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise _build_error(raw.count(b"\n", 0, error.start) + 1, (), "this line is not UTF-8") from error
    return parse_yaml_document(text)


def parse_yaml_document(text: str) -> YamlDocument:
    """The single mapping in this text. Raises `UnreadableDocumentError` naming the line if the text is not one."""
    try:
        loader = CheckedLoader(text)
        root = loader.get_single_node()
        values = None if root is None else loader.construct_document(root)
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _build_error(line, (), f"character U+{error.character:04X} is not allowed") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or str(error.context)
        if problem.startswith(INDENTATION_PROBLEMS):
            problem += "; is the line indented as its neighbours are?"
        if mark is None:
            raise _build_error(None, (), problem) from error
        raise _build_error(mark.line + 1, _find_open_path(text, mark.index), problem) from error
    except RecursionError as error:
        raise _build_error(None, (), "it is nested too deeply") from error
    if not isinstance(values, dict) or root is None:
        raise UnreadableDocumentError(FieldFault(None, (), "not a mapping; begin with apiVersion: vrampack.dev/v1"))
    return YamlDocument(values, root)


class CheckedLoader(yaml.SafeLoader):
    """Adds the line to errors of PyYAML's own readers of dates, numbers and bools, which raise any exception without it."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - PyYAML's own signature
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError) as error:
            raise ConstructorError(None, None, str(error), node.start_mark) from error


def _build_error(line: int | None, path: FieldPath, problem: str) -> UnreadableDocumentError:
    return UnreadableDocumentError(FieldFault(line, path, f"not YAML: {problem}"))


def _list_fields(node: yaml.MappingNode) -> dict[str, tuple[int, yaml.Node]]:
    """The line and the value of each field; for a duplicate key those of the last one, which YAML takes."""
    return {
        key.value: (key.start_mark.line + 1, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)
    }


def _list_doubled_keys(node: yaml.Node, path: FieldPath, visited: set[int]) -> Iterator[FieldFault]:
    if id(node) in visited:  # an alias of a node that was visited already
        return
    visited.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for place, value in enumerate(node.value):
            yield from _list_doubled_keys(value, (*path, place), visited)
    elif isinstance(node, yaml.MappingNode):
        first_lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            line = key.start_mark.line + 1
            if key.value in first_lines:
                text = f"is given twice, first in line {first_lines[key.value]}; remove one"
                yield FieldFault(line, (*path, key.value), text)
            first_lines.setdefault(key.value, line)
            yield from _list_doubled_keys(value, (*path, key.value), visited)


def _find_open_path(text: str, end: int) -> FieldPath:
    """The last field that began before this position, or before the YAML reader gave up."""
    frames: list[_Frame] = []
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                frames.pop()
            elif isinstance(event, yaml.NodeEvent):
                if frames:
                    frames[-1].begin_node(event)
                if event.start_mark is not None and event.start_mark.index >= end:
                    break
                if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                    frames.append(_Frame(is_mapping=isinstance(event, yaml.MappingStartEvent)))
    except (yaml.YAMLError, RecursionError):
        pass  # the caller has this error already: the text can be read only up to here
    return tuple(frame.part for frame in frames if frame.part is not None)


class _Frame:
    """An open mapping or list, and which of its fields is being read."""

    def __init__(self, *, is_mapping: bool) -> None:
        self.part: str | int | None = None
        self._is_mapping = is_mapping
        self._nodes = 0

    def begin_node(self, event: yaml.NodeEvent) -> None:
        if not self._is_mapping:
            self.part = self._nodes
        elif self._nodes % 2 == 0:  # keys and values take turns
            self.part = event.value if isinstance(event, yaml.ScalarEvent) else "?"
        self._nodes += 1
