"""Panels and dashboards, and their JSON in Grafana's classic model (schema 39), which every Grafana since 10 imports."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Json: TypeAlias = Mapping[str, Any]
"""A part of the JSON, which is not read field by field here."""

SCHEMA = 39
WIDTH = 24
"""Of Grafana's grid."""
HEIGHT = 8
SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
RATE = "$__rate_interval"
"""Grafana's own: at least four scrapes."""
EVERY_PROGRAM = '{__name__=~"vrampack_(agent_)?build_info"}'
SOURCES: Mapping[str, str] = {"cluster": EVERY_PROGRAM, "job": EVERY_PROGRAM}
"""Variables of every dashboard, where several clusters send to one store or several jobs scrape the programs."""
Unit: TypeAlias = Literal["bytes", "short", "percentunit", "s", "ops", "celsius", "watt"]


@dataclass(frozen=True, slots=True)
class Panel:
    """One query. `legend` names labels as `{{node}}`; a quarter, a third or half of the width."""

    title: str
    description: str
    query: str
    legend: str
    unit: Unit = "short"
    kind: Literal["timeseries", "stat", "table"] = "timeseries"
    width: int = WIDTH // 2

    @property
    def chosen_query(self) -> str:
        """The query of the chosen clusters and jobs alone. A recorded series has no job."""
        return _OWN_SERIES.sub(_choose_source, self.query)


_OWN_SERIES = re.compile(r"\b(vrampack[\w:]*)({?)")


def _choose_source(series: re.Match[str]) -> str:
    name, brace = series.groups()
    labels = ("cluster",) if ":" in name else ("cluster", "job")
    chosen = ",".join(f'{label}=~"${label}"' for label in labels)
    return f"{name}{{{chosen}{',' if brace else '}'}"


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page; `variables` are label names by the metric whose values they take."""

    uid: str
    title: str
    description: str
    panels: Sequence[Panel]
    variables: Mapping[str, str] = field(default_factory=dict)

    def build_json(self) -> Json:
        """What Grafana imports."""
        return {
            "id": None,
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["vrampack", "gpu"],
            "schemaVersion": SCHEMA,
            "version": 1,
            "editable": True,
            "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"},
            "templating": {
                "list": [_DATASOURCE, *(_build_variable(*each) for each in {**SOURCES, **self.variables}.items())]
            },
            "panels": list(_place_panels(self.panels)),
        }


_DATASOURCE: Json = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _build_variable(label: str, metric: str) -> Json:
    """All values of a label, of which several may be chosen."""
    return {
        "name": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": f"label_values({metric}, {label})", "refId": "A"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
    }


def _place_panels(panels: Sequence[Panel]) -> Sequence[Json]:
    """From left to right, a new row where the width is used up."""
    placed: list[Json] = []
    x = y = 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > WIDTH:
            x, y = 0, y + HEIGHT
        position = {"x": x, "y": y, "w": panel.width, "h": HEIGHT}
        placed.append(_build_panel(panel, number) | {"gridPos": position})
        x += panel.width
    return placed


def _build_panel(panel: Panel, number: int) -> dict[str, Any]:  # Any: as `Json`
    target = {"refId": "A", "datasource": SOURCE, "expr": panel.chosen_query, "legendFormat": panel.legend}
    is_table = panel.kind == "table"
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "targets": [target | ({"format": "table", "instant": True} if is_table else {})],
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}} if panel.kind == "timeseries" else {},
    }
