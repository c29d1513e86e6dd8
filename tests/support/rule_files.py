"""The shipped rules as Prometheus and promtool read them, and with time running faster."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeAlias

from tests.support.manifests import MANIFESTS, load_documents

Json: TypeAlias = Any
"""A rule, whose fields are read one by one."""

RULES = MANIFESTS / "monitoring" / "rules.yaml"
SECONDS = {"s": 1, "m": 60, "h": 3600}
RANGE = re.compile(r"\[(\d+)([smh])\]")
MINUTES = re.compile(r"\b(\d+) \* 60\b")
"""How a duration is written in an expression. Days (`* 86400`) are dates, which run no faster."""


def load_groups() -> list[Json]:
    (resource,) = load_documents(RULES)
    groups: list[Json] = resource["spec"]["groups"]
    return groups


def list_alerts() -> list[Json]:
    return [rule for rule in list_rules(load_groups()) if "alert" in rule]


def list_rules(groups: Iterable[Json]) -> list[Json]:
    return [rule for group in groups for rule in group["rules"]]


def write_rules(path: Path, groups: list[Json] | None = None, *, speed: int = 1) -> Path:
    """A rule file of these groups, or the shipped ones; with `speed` an hour of their durations passes in 3600 / speed seconds.

    JSON is YAML.
    """
    groups = load_groups() if groups is None else deepcopy(groups)
    for rule in list_rules(groups):
        rule["expr"] = MINUTES.sub(
            lambda found: f"{int(found[1]) * 60 / speed:g}",
            RANGE.sub(lambda found: f"[{_shorten(found[1], found[2], speed)}]", rule["expr"]),
        )
        if "for" in rule:
            rule["for"] = _shorten(rule["for"][:-1], rule["for"][-1], speed)
    path.write_text(json.dumps({"groups": groups}))
    return path


def _shorten(number: str, unit: str, speed: int) -> str:
    return f"{int(number) * SECONDS[unit] * 1000 // speed}ms"
