"""The content of the tables as JSON and YAML, for programs. docs/schemas/inspection.v1.json describes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from vrampack.cards.inspection import build_inspection
from vrampack.cli.inspect.cluster import InspectedCluster

_MAX_SHORT_ESCAPE = 0xFFFF
r"""The last code point that `\u` and four digits can express."""
_PLAIN_SCALAR = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_RESERVED_SCALARS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
"""Words that some YAML readers take for other values."""


def format_json(cluster: InspectedCluster) -> str:
    return format_json_document(build_inspection_document(cluster))


def format_yaml(cluster: InspectedCluster) -> str:
    return format_yaml_document(build_inspection_document(cluster))


def format_json_document(document: object) -> str:
    return json.dumps(document, indent=4, ensure_ascii=False) + "\n"


def format_yaml_document(document: object) -> str:
    return "\n".join(_format_block(document)) + "\n"


def build_inspection_document(cluster: InspectedCluster) -> dict[str, object]:
    """The document; its nodes have the format of the extender's inspect route."""
    return {
        "apiVersion": "vrampack.dev/v1",
        "kind": "Inspection",
        "unitMiB": cluster.unit_mib,
        "totalGPU": cluster.total_units,
        "usedGPU": cluster.reserved_units,
        "heldGPU": cluster.used_units,
        "nodes": [build_inspection(view.node, view.holds) for view in cluster.nodes],
        "unread": [{"object": each.object_name, "problem": each.problem} for each in cluster.unread_objects],
    }


def _format_block(value: object) -> Iterable[str]:
    """The YAML lines of a value of the document, without indent: objects, lists, texts, numbers, bools, null."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _format_entry(f"{key}:", item, indent="  " * isinstance(item, dict))
    elif isinstance(value, list) and value:
        for item in value:
            first, *rest = _format_block(item)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield _format_scalar(value)


def _format_entry(key: str, value: object, *, indent: str) -> Iterable[str]:
    lines = list(_format_block(value))
    if isinstance(value, dict | list) and value:
        yield key
        yield from (indent + line for line in lines)
    else:
        yield f"{key} {lines[0]}"


def _format_scalar(value: object) -> str:
    if isinstance(value, str):
        return value if _PLAIN_SCALAR.fullmatch(value) and value.lower() not in _RESERVED_SCALARS else _quote(value)
    return json.dumps(value)


def _quote(text: str) -> str:
    """The text in double quotes, in which YAML has JSON's escapes; escapes everything that is not printable."""
    return "".join(char if char.isprintable() else _escape(char) for char in json.dumps(text, ensure_ascii=False))


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= _MAX_SHORT_ESCAPE else f"\\U{ord(char):08x}"
