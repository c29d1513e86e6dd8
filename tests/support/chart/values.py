"""The values of the chart with the comment that each has in values.yaml, as the table of docs/chart.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from tests.support.manifests import MANIFESTS, Json

CHART = MANIFESTS.parent / "charts" / "vrampack"

LINE = re.compile(r"^( *)([A-Za-z]\w*):(.*)$")


@dataclass(frozen=True, slots=True)
class ChartValue:
    """One value that can be set: `agent.driver`."""

    path: str
    default: Json
    comment: str
    """Why to set it; empty where values.yaml says nothing."""

    @property
    def row(self) -> str:
        default = self.default if isinstance(self.default, str) and self.default else json.dumps(self.default)
        return f"| `{self.path}` | `{default}` | {self.comment.rstrip('.')} |\n"


def read_values() -> Iterator[ChartValue]:
    """Every value of values.yaml that has a comment or is no mapping of others, in its order."""
    text = (CHART / "values.yaml").read_text()
    values = yaml.safe_load(text)
    inside: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            comment.append(line.strip("# "))
        elif found := LINE.match(line):
            indent, key, rest = len(found[1]), found[2], found[3].strip()
            inside = [each for each in inside if each[0] < indent]
            if not any(_is_leaf(values, inside[: place + 1]) for place in range(len(inside))):
                inside.append((indent, key))
                if rest or _is_leaf(values, inside):
                    yield ChartValue(_join(inside), _pick(values, inside), " ".join(comment))
            comment = []
        elif not line.strip():
            comment = []


def _join(inside: list[tuple[int, str]]) -> str:
    return ".".join(key for _, key in inside)


def _pick(values: Json, inside: list[tuple[int, str]]) -> Json:
    for _, key in inside:
        values = values[key]
    return values


def _is_leaf(values: Json, inside: list[tuple[int, str]]) -> bool:
    """A list, a scalar, or a mapping that is one value: `resources`, or one that is empty by itself."""
    found = _pick(values, inside)
    return not isinstance(found, dict) or not found or inside[-1][1] in {"resources", "scrapers"}
