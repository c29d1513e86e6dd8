"""Every group runs, on a hundredth of its sizes, and yields the rows that table and documentation list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import agent, rebuild, repeated_no, verbs
from benchmarks.options import Options
from benchmarks.rows import Row
from benchmarks.table import EXPECTED, OF_SIZE

GROUPS = {"verbs": verbs.rows, "no": repeated_no.rows, "agent": agent.rows, "rebuild": rebuild.rows}


DOCS = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()


def documented_as(row: Row) -> str:
    goal, floor = ("-" if bound is None else f"{bound:g}" for bound in (row.goal, row.floor))
    return f"\n| `{row.key}` | {goal} | {floor} | {row.unit} |\n"


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_yields_its_rows(group: str) -> None:
    measure: Callable[[Options], Iterator[Row]] = GROUPS[group]
    found = list(measure(Options(shrink=100)))
    assert [row.key for row in found] == list(EXPECTED[group])
    assert all(row.figure is not None and row.figure > 0 for row in found)
    assert [line for row in found if (line := documented_as(row)) not in DOCS] == []


def test_one_size_alone() -> None:
    found = list(verbs.rows(Options(shrink=100, nodes=1000)))
    assert [row.key for row in found] == list(OF_SIZE[1000])


def test_a_bind_is_one_call() -> None:
    (row,) = [row for row in verbs.rows(Options(shrink=100, nodes=1000)) if row.key == "bind-calls"]
    assert (row.figure, row.verdict) == (1, "PASS")
