"""What docs/benchmarks.md says about a row."""

from __future__ import annotations

from pathlib import Path

from benchmarks.benchmark_row import BenchmarkRow

DOCS = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()


def documented_line(row: BenchmarkRow) -> str:
    goal, floor = ("-" if bound is None else f"{bound:g}" for bound in (row.goal, row.floor))
    return f"\n| `{row.key}` | {goal} | {floor} | {row.unit} |\n"
