"""What panels showed in their scenarios, and what was counted beside them: `build/panels`, one file for each panel.

`make panel-pictures` draws the pictures of docs/dashboards.md from these files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

FOLDER = Path(__file__).parents[2] / "build" / "panels"
Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Of a series: sorted, without the name of the metric."""
Points: TypeAlias = Sequence[tuple[float, float]]
"""Seconds since the first scrape, and a value."""


@dataclass(frozen=True, slots=True)
class SeriesRecord:
    """One series of a panel."""

    labels: Labels
    shown: float
    counted: str
    """What it had to be."""
    points: Points
    """What Prometheus has of it, in order."""


@dataclass(frozen=True, slots=True)
class PanelRecord:
    """One panel in its scenario."""

    dashboard: str
    title: str
    query: str
    """As it is shipped."""
    scenario: str
    scrapes: int
    """Until it showed what was counted."""
    series: Sequence[SeriesRecord]

    def write(self) -> None:
        """The scenario that ends last stays."""
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / f"{self.dashboard} {self.title.replace('/', ' ')}.json").write_text(json.dumps(asdict(self)))


def read_records() -> dict[tuple[str, str], PanelRecord]:
    """By dashboard and title. Raises `OSError` where no scenario ran."""
    found = [_parse_record(json.loads(path.read_text())) for path in FOLDER.iterdir()]
    return {(record.dashboard, record.title): record for record in found}


def _parse_record(fields: dict[str, Any]) -> PanelRecord:  # Any: as written above
    series = [
        SeriesRecord(
            tuple((key, value) for key, value in each["labels"]),
            each["shown"],
            each["counted"],
            [(at, value) for at, value in each["points"]],
        )
        for each in fields.pop("series")
    ]
    return PanelRecord(**fields, series=series)
