"""What the tables print as JSON and as YAML, for programs. docs/schemas/inspection.v1.json describes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from vrampack.cards.inspection import build_inspection
from vrampack.cli.inspect.gather import Cluster

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_NOT_TEXTS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
"""Words that some reader of YAML takes for something else."""


def as_json(cluster: Cluster) -> str:
    return json.dumps(form(cluster), indent=4, ensure_ascii=False) + "\n"


def as_yaml(cluster: Cluster) -> str:
    return "\n".join(_block(form(cluster))) + "\n"


def form(cluster: Cluster) -> dict[str, object]:
    """The nodes are in the form of the extender's inspect route."""
    return {
        "apiVersion": "vrampack.dev/v1",
        "kind": "Inspection",
        "unitMiB": cluster.unit_mib,
        "totalGPU": cluster.total_units,
        "usedGPU": cluster.kept_units,
        "heldGPU": cluster.used_units,
        "nodes": [build_inspection(view.node, view.holds) for view in cluster.nodes],
        "unread": [{"object": each.what, "problem": each.problem} for each in cluster.unread],
    }


def _block(value: object) -> Iterable[str]:
    """YAML lines of a value, without indent. Only what `form` holds: objects, lists, texts, numbers, bools, null."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _entry(f"{key}:", item, indent="  " * isinstance(item, dict))
    elif isinstance(value, list) and value:
        for item in value:
            first, *rest = _block(item)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield _scalar(value)


def _entry(key: str, value: object, *, indent: str) -> Iterable[str]:
    lines = list(_block(value))
    if isinstance(value, dict | list) and value:
        yield key
        yield from (indent + line for line in lines)
    else:
        yield f"{key} {lines[0]}"


def _scalar(value: object) -> str:
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXTS else _quoted(value)
    return json.dumps(value)


def _quoted(text: str) -> str:
    """In double quotes, whose escapes YAML has from JSON; all that is not printable is escaped."""
    return "".join(char if char.isprintable() else _escaped(char) for char in json.dumps(text, ensure_ascii=False))


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"  # noqa: PLR2004 - the last of four digits
