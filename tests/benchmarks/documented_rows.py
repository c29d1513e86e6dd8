"""What docs/benchmarks.md says about a row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.table import EXPECTED_KEYS

DOCS = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()


def documented_line(row: BenchmarkRow) -> str:
    goal, floor = ("-" if bound is None else f"{bound:g}" for bound in (row.goal, row.floor))
    return f"\n| `{row.key}` | {goal} | {floor} | {row.unit} |\n"


def check_rows(group: str, found: Sequence[BenchmarkRow]) -> None:
    """These rows, and no others, are those of the group; each has a figure, and a line in the documentation."""
    assert [row.key for row in found] == list(EXPECTED_KEYS[group])
    assert all(row.figure is not None and row.figure > 0 for row in found)
    assert [line for row in found if (line := documented_line(row)) not in DOCS] == []
